"""Names that a shell completes: namespaces, queues, workloads, GPUs and other objects that a command takes.

They are read from the API server with the caller's rights, within a short time. Where that fails there are no names,
and no message: a shell would print it into the line that is typed.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from cli.options import default_kubeconfigs

if TYPE_CHECKING:
    from kube.config import ClusterConfig
    from kube.resources import Resource

TIMEOUT_S: Final = 3.0
_MOST_SPACES: Final = 8
"""The most namespaces that are searched for one word."""
_POD_WORDS: Final = ("pod", "pods", "po")
_WORKLOADS: Final = ("name", "named")
"""Parameters that may be NAMESPACE/NAME."""

Complete = Callable[[click.Context, click.Parameter, str], list[str]]
Json = dict[str, Any]


def _resource(plural: str) -> "Resource":
    # The controller's modules are loaded where names are asked for, not where options are declared.
    from controller.cluster.watching import kinds
    from kube.resources import NODES, PODS

    queues = (kinds.CLUSTER_QUEUES, kinds.LOCAL_QUEUES, kinds.COHORTS, kinds.FLAVORS)
    others = (kinds.NAMESPACES, kinds.WORKLOADS, kinds.WORKLOAD_CLASSES, kinds.GPU_NODES, NODES, PODS)
    return next(each for each in (*queues, *others) if each.plural == plural)


def names(plural: str) -> Complete:
    """A completion of names of the kind: in the namespace of ``-n``, else the context's, where the kind has
    namespaces.
    """

    def complete(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
        resource = _resource(plural)
        return _matching(map(_name, _read(ctx, resource, _space(ctx, resource))), incomplete)

    return complete


def everywhere(plural: str, *others: str) -> Complete:
    """A completion of ``NAMESPACE/NAME`` of all namespaces, and of names of ``others``."""

    def complete(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
        found = [f"{_namespace(each)}/{_name(each)}" for each in _read(ctx, _resource(plural), None)]
        for other in others:
            found += map(_name, _read(ctx, _resource(other), None))
        return _matching(found, incomplete)

    return complete


def workloads(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """The Workloads and the jobs that they stand for, in a namespace that is named before a slash, by ``-n``, or by the
    context; and NAMESPACE/NAME of the namespaces that begin with the typed word.
    """
    space, slash, _bare = incomplete.rpartition("/")
    if slash:
        return _matching((f"{space}/{name}" for name in _jobs(ctx, space)), incomplete)
    candidates = _jobs(ctx, _space(ctx, _resource("workloads")))
    if incomplete and not _given(ctx, "namespace"):
        namespaces = _matching(map(_name, _read(ctx, _resource("namespaces"), None)), incomplete)
        candidates |= {f"{other}/{name}" for other in namespaces[:_MOST_SPACES] for name in _jobs(ctx, other)}
    return _matching(candidates, incomplete)


def workloads_and_pods(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """The names that ``workloads`` gives, and pod/NAME once the word for a pod is begun."""
    space, slash, _bare = incomplete.rpartition("/")
    word = space if slash else "pod"
    candidates: list[str] = []
    if word in _POD_WORDS and incomplete and f"{word}/".startswith(incomplete[: len(word) + 1]):
        pods = _resource("pods")
        candidates = [f"{word}/{_name(each)}" for each in _read(ctx, pods, _space(ctx, pods))]
        if slash:
            return _matching(candidates, incomplete)
    return _matching([*candidates, *workloads(ctx, param, incomplete)], incomplete)


def gpus_of_node(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """The GPUs of the node that the line names already: indexes, and UUIDs once one is begun."""
    named = ctx.params.get("node") or next(iter(ctx.args or ()), "")
    try:
        found = asyncio.run(_one(_cluster(ctx), _resource("gpunodes"), str(named)))
        devices = found["status"]["devices"]
        return _matching((str(each["uuid" if incomplete[:1] == "G" else "index"]) for each in devices), incomplete)
    except Exception:  # noqa: BLE001 - see the module: a shell is not told
        return []


def _jobs(ctx: click.Context, namespace: str | None) -> set[str]:
    """The names of Workloads and of the jobs that they stand for."""
    candidates: set[str] = set()
    for each in _read(ctx, _resource("workloads"), namespace):
        candidates.add(_name(each))
        owners = each["metadata"].get("ownerReferences") or []
        candidates.update(str(owner["name"]) for owner in owners if owner.get("controller"))
    return candidates


def kubectls(plural: str) -> Complete:
    """A completion of names of the kind among kubectl's own words; those that choose the cluster and the namespace are
    read.
    """

    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
        from cli.kubectlwords import read

        typed = read(tuple(map(str, ctx.params.get(param.name or "") or ())))
        ctx.params |= {"namespace": typed.namespace, "context": typed.context, "everywhere": typed.everywhere}
        ctx.params["kubeconfigs"] = (Path(typed.kubeconfig),) if typed.kubeconfig else None
        if typed.lacks == "namespace":
            return names("namespaces")(ctx, param, incomplete)
        if typed.lacks == "context":
            return contexts(ctx, param, incomplete)
        return [] if typed.lacks else names(plural)(ctx, param, incomplete)

    return complete


def contexts(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """The contexts of the kubeconfig files."""
    from kube.errors import ConfigError
    from kube.kubeconfig import contexts_of

    try:
        return _matching(contexts_of(_files(ctx)), incomplete)
    except ConfigError:
        return []


def _matching(found: Iterable[str], incomplete: str) -> list[str]:
    return sorted({each for each in found if each.startswith(incomplete)})


def _name(given: Json) -> str:
    return str(given["metadata"]["name"])


def _namespace(given: Json) -> str:
    return str(given["metadata"].get("namespace", ""))


def _files(ctx: click.Context) -> tuple[Path, ...]:
    found: tuple[Path, ...] = _given(ctx, "kubeconfigs") or default_kubeconfigs()
    return found


def _given(ctx: click.Context, name: str) -> Any:
    return next((each.params[name] for each in _line(ctx) if each.params.get(name)), None)


def _line(ctx: click.Context | None) -> Iterator[click.Context]:
    while ctx is not None:
        yield ctx
        ctx = ctx.parent


def _cluster(ctx: click.Context) -> "ClusterConfig":
    """The configuration of the client. Raises click.ClickException, ConfigError."""
    from kube.logins import logged_in

    return logged_in(*_files(ctx), context=_given(ctx, "context"))


def _space(ctx: click.Context, resource: "Resource") -> str | None:
    """The namespace to look into; None for all, or where there is no cluster. Raises nothing."""
    if not resource.namespaced or _given(ctx, "everywhere"):
        return None
    named = _given(ctx, "namespace") or _before_slash(ctx)
    if named:
        return str(named)
    try:
        return _cluster(ctx).namespace
    except Exception:  # noqa: BLE001 - see the module: a shell is not told
        return None


def _before_slash(ctx: click.Context) -> str:
    """The namespace of the WORKLOAD that the line names already: names completed behind it are of its namespace.

    Click leaves arguments in ``args`` where an option before the cursor still lacks its value.
    """
    given = next((ctx.params[name] for name in _WORKLOADS if ctx.params.get(name)), ctx.args or "")
    word = given if isinstance(given, str) else str(given[0])
    return word.rpartition("/")[0]


def _read(ctx: click.Context, resource: "Resource", namespace: str | None) -> list[Json]:
    try:
        return asyncio.run(_asked(_cluster(ctx), resource, namespace))
    except Exception:  # noqa: BLE001 - see the module: a shell is not told
        return []


async def _asked(cluster: "ClusterConfig", resource: "Resource", namespace: str | None) -> list[Json]:
    from cli.naming.meant import listed
    from kube.client import Client

    async with asyncio.timeout(TIMEOUT_S), Client(cluster, timeout_s=TIMEOUT_S, user_agent="tessera-cli") as client:
        return await listed(client, resource, namespace)


async def _one(cluster: "ClusterConfig", resource: "Resource", name: str) -> Json:
    from kube.client import Client

    async with asyncio.timeout(TIMEOUT_S), Client(cluster, timeout_s=TIMEOUT_S, user_agent="tessera-cli") as client:
        return await client.get(resource, name, Json)
