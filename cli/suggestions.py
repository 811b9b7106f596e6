"""Names that a shell completes: namespaces, queues, workloads and what else of a cluster a command takes.

Asked of the API server with the caller's rights, for a moment only. Who cannot be told gets no names, and no message:
a shell would print it into the line that is typed.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from cli.kubeconfigs import default_kubeconfigs

if TYPE_CHECKING:
    from kube.config import ClusterConfig
    from kube.resources import Resource

TIMEOUT_S: Final = 3.0

Complete = Callable[[click.Context, click.Parameter, str], list[str]]
Json = dict[str, Any]


def _resource(plural: str) -> "Resource":
    # The controller's modules are loaded where names are asked for, not where options are declared.
    from controller.watching import kinds
    from kube.resources import NODES, PODS

    queues = (kinds.CLUSTER_QUEUES, kinds.LOCAL_QUEUES, kinds.COHORTS, kinds.FLAVORS)
    others = (kinds.NAMESPACES, kinds.WORKLOADS, kinds.WORKLOAD_CLASSES, NODES, PODS)
    return next(each for each in (*queues, *others) if each.plural == plural)


def names(plural: str) -> Complete:
    """Names of objects of the kind: in the namespace of ``-n``, else the context's, where the kind has namespaces."""

    def complete(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
        resource = _resource(plural)
        return _matching(map(_name, _read(ctx, resource, _space(ctx, resource))), incomplete)

    return complete


def everywhere(plural: str, *others: str) -> Complete:
    """``NAMESPACE/NAME`` of all namespaces, and names of ``others``."""

    def complete(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
        found = [f"{_namespace(each)}/{_name(each)}" for each in _read(ctx, _resource(plural), None)]
        for other in others:
            found += map(_name, _read(ctx, _resource(other), None))
        return _matching(found, incomplete)

    return complete


def workloads(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Workloads and the jobs that they stand for, of a namespace that is named before a slash, by ``-n``, or by the
    context.
    """
    resource = _resource("workloads")
    space, slash, _bare = incomplete.rpartition("/")
    if space in ("pod", "pods", "po"):
        pods = _resource("pods")
        return _matching((f"{space}/{_name(each)}" for each in _read(ctx, pods, _space(ctx, pods))), incomplete)
    found: set[str] = set()
    for each in _read(ctx, resource, space if slash else _space(ctx, resource)):
        found.add(_name(each))
        owners = each["metadata"].get("ownerReferences") or []
        found.update(str(owner["name"]) for owner in owners if owner.get("controller"))
    return _matching((f"{space}{slash}{name}" for name in found), incomplete)


def contexts(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Contexts of the kubeconfig files."""
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
    """Raises click.ClickException, ConfigError."""
    from kube.logins import logged_in

    return logged_in(*_files(ctx), context=_given(ctx, "context"))


def _space(ctx: click.Context, resource: "Resource") -> str | None:
    """Raises nothing: without a cluster there is no namespace, and no name either."""
    if not resource.namespaced or _given(ctx, "everywhere"):
        return None
    named = _given(ctx, "namespace")
    if named:
        return str(named)
    try:
        return _cluster(ctx).namespace
    except Exception:  # noqa: BLE001 - see the module: a shell is not told
        return None


def _read(ctx: click.Context, resource: "Resource", namespace: str | None) -> list[Json]:
    try:
        return asyncio.run(_asked(_cluster(ctx), resource, namespace))
    except Exception:  # noqa: BLE001 - see the module: a shell is not told
        return []


async def _asked(cluster: "ClusterConfig", resource: "Resource", namespace: str | None) -> list[Json]:
    from cli.meant import listed
    from kube.client import Client

    async with asyncio.timeout(TIMEOUT_S), Client(cluster, timeout_s=TIMEOUT_S, user_agent="tessera-cli") as client:
        return await listed(client, resource, namespace)
