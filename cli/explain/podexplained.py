"""``tessera explain pod/NAME``: explains any pod that asks for GPUs, in a queue or in none. It reads with the caller's
rights.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click
import msgspec

from cli.access.cluster import is_kind_missing, told
from cli.access.kubeapi import namespaced
from cli.explain import claims, layouts, offers
from cli.explain.running import gpu_nodes
from cli.naming.meant import meant
from cli.printing.console import Json, aside
from cli.words import queues as say
from cli.workload.find import events_about
from cli.workload.story import Moment, concerns, moment_of, time_of
from controller.cluster.watching.kinds import CLAIM_TEMPLATES, DEVICE_CLAIMS, DEVICE_CLASSES, DEVICE_SLICES
from controller.jobs.framework.podview import ADMISSION_GATE, GROUP_NAME, workload_of
from controller.objects.core import Node, Pod
from controller.objects.decode import DecodeError, GpuNode, decode
from controller.objects.deviceclaims import DeviceClass, ResourceClaimTemplate, ResourceSlice, expressions
from controller.scheduler.model.podrequests import one_pod
from inventory.api.names import CONTROLLER
from kube.client import Client, Selection
from kube.errors import ForbiddenError, NotFoundError
from kube.resources import NODES, PODS, Resource

if TYPE_CHECKING:
    from cli.explain.coming import Plans

T = TypeVar("T")

POD_WORDS: Final = ("pod", "pods", "po")
"""The words for TYPE in TYPE/NAME."""
_LACKS_PODS: Final = "WaitingForPods"
"""The reason of the controller's Event about a pod of a group that has too few of them."""


async def pod_of(client: Client, namespace: str, name: str) -> Json:
    """The pod. Raises click.ClickException, KubeError."""
    try:
        return await client.get(PODS, name, Json, namespace=namespace)
    except NotFoundError:
        near = await meant(client, PODS, name, namespace)
        raise click.ClickException(say.no_pod(name, namespace) + near) from None


def workload_name(pod: Json) -> str | None:
    """The name of the Workload that the pod belongs to; None where there is none."""
    try:
        key = workload_of(decode(pod, Pod))
    except DecodeError:
        return None
    return None if key is None else str(key).partition("/")[2]


async def explained(client: Client, pod: Json) -> Json:
    """The answer as JSON. Objects that may not be read are left out with a note."""
    typed, space = decode(pod, Pod), str(pod["metadata"]["namespace"])
    agents = await gpu_nodes(client)
    asked = offers.asked(typed, agents)
    claims_asked = bool((pod.get("spec") or {}).get("resourceClaims"))
    nodes = await _read(client, NODES, _as(Node)) if asked or claims_asked else ()
    pods = await _read(client, PODS, _asking(frozenset(asked)), note=False) if asked and nodes is not None else None
    by_name = {each.metadata.name: each for each in agents}
    waits = not typed.spec.node_name and bool(asked or claims_asked)
    plans = await _plans(client, nodes or (), by_name) if waits else None
    resources = []
    for resource, amount in sorted(asked.items()):
        found = offers.by_resource(resource, typed, nodes or (), by_name, pods)
        coming = [*plans.of_resource(resource, {each.node: each.offers for each in found})] if plans else []
        remedy = None if found or coming or nodes is None else layouts.for_resource(resource, agents)
        row = {"resource": resource, "amount": amount, "nodes": found, "layout": remedy, "coming": coming}
        resources.append(row)
    claimed = await _claimed(client, pod, agents, plans) if claims_asked else []
    phase, sentence, since = offers.described(pod)
    at = time_of(since)
    found_body: dict[str, Any] = {
        "pod": f"{space}/{pod['metadata']['name']}",
        "phase": phase,
        "node": typed.spec.node_name or None,
        "workload": workload_name(pod),
        "sentence": sentence or None,
        "since": since,
        "sinceSeconds": None if at is None else max(0, int((datetime.now(UTC) - at).total_seconds())),
        "refusal": await _refusal(client, pod),
        "gates": [str(each.get("name")) for each in (pod.get("spec") or {}).get("schedulingGates") or ()],
        "resources": resources,
        "claims": claimed,
    }
    body: Json = msgspec.to_builtins(found_body)
    return body


async def _refusal(client: Client, pod: Json) -> Json | None:
    """Why a pod that waits for quota is not queued: the last Warning about it, or that its group lacks pods, which one
    pod of the group is told. None for any other pod, and where the controller has told it something else since.
    """
    gates = [str(each.get("name")) for each in (pod.get("spec") or {}).get("schedulingGates") or ()]
    if ADMISSION_GATE not in gates:
        return None
    group, space = _group(pod), pod["metadata"].get("namespace")
    sisters: list[Json] = []
    if group:
        with suppress(ForbiddenError):
            sisters = [each for each in await namespaced(client, PODS, space) if _group(each) == group]
    candidates: list[tuple[Moment, Json]] = []
    for event in await events_about(client, sisters or [pod], PODS.kind):
        mine = concerns(event, frozenset({str(pod["metadata"].get("uid"))}), frozenset({_named(pod)}))
        is_known = event.get("type") == "Warning" or event.get("reportingController") == CONTROLLER
        if ((mine and is_known) or _lacks_pods(event)) and (moment := moment_of(event)) is not None:
            candidates.append((moment, event))
    last, event = max(candidates, key=lambda pair: pair[0].at, default=(None, {}))
    if last is None or not (event.get("type") == "Warning" or _lacks_pods(event)):
        return None
    return {"reason": last.what, "sentence": last.text, "since": last.at.isoformat()}


def _lacks_pods(event: Json) -> bool:
    return event.get("reason") == _LACKS_PODS and event.get("reportingController") == CONTROLLER


def _named(pod: Json) -> tuple[str, str]:
    return PODS.kind, str(pod["metadata"]["name"])


def _group(pod: Json) -> str:
    """The name of the group that the pod is in; empty for none."""
    native = ((pod.get("spec") or {}).get("schedulingGroup") or {}).get("podGroupName")
    return str(native or (pod["metadata"].get("labels") or {}).get(GROUP_NAME) or "")


async def _claimed(client: Client, pod: Json, agents: tuple[GpuNode, ...], plans: "Plans | None") -> list[Json]:
    # Imported here, as in _plans: it brings the agent's modules, for which the first answer need not wait.
    from cli.explain.claimlayouts import for_claim

    world = await _claims(client, str(pod["metadata"]["namespace"]), agents)
    drivers = {each.spec.driver for each in world.slices}
    claimed: list[Json] = []
    for ask in claims.asked(pod, world):
        missing = not ask.nodes and not ask.problem and ask.state != "allocated"
        coming = [*plans.by_claim()] if plans is not None and missing else []
        remedy = None
        if missing and not coming:
            selectors = expressions(world.classes[ask.device_class].spec.selectors)
            remedy = for_claim(ask, selectors, agents, sorted(drivers))
        claimed.append({**msgspec.to_builtins(ask), "layout": remedy, "coming": coming})
    return claimed


async def _plans(client: Client, nodes: tuple[Node, ...], agents: Mapping[str, GpuNode]) -> "Plans":
    from agent.cluster.gpulayouts import GPU_LAYOUTS, Found, read
    from cli.explain.coming import Plans

    def decoded(raw: bytes) -> Found | None:
        try:
            return read(raw)
        except msgspec.MsgspecError as wrong:
            aside(f"passed over: {wrong}")
            return None

    return Plans(nodes, agents, await _read(client, GPU_LAYOUTS, decoded) or ())


async def _claims(client: Client, namespace: str, agents: tuple[GpuNode, ...]) -> claims.World:
    classes = await _read(client, DEVICE_CLASSES, _as(DeviceClass)) or ()
    slices = await _read(client, DEVICE_SLICES, _as(ResourceSlice)) or ()
    templates = await _read(client, CLAIM_TEMPLATES, _as(ResourceClaimTemplate), namespace) or ()
    made = await _read(client, DEVICE_CLAIMS, _json, note=False)
    if made is None:  # pods of other namespaces may not be read
        made = await _read(client, DEVICE_CLAIMS, _json, namespace) or ()
    return claims.World(
        classes={each.metadata.name: each for each in classes},
        slices=slices,
        claims=made,
        templates={each.metadata.name: each for each in templates},
        agents=agents,
    )


def _json(raw: bytes) -> Json | None:
    found: Json = msgspec.json.decode(raw)
    return found


def _asking(resources: frozenset[str]) -> Callable[[bytes], Pod | None]:
    """A decoder of pods that ask for any of the resources: no others of a whole cluster are kept."""
    read = _as(Pod)

    def asking(raw: bytes) -> Pod | None:
        pod = read(raw)
        return pod if pod is not None and not resources.isdisjoint(one_pod(pod.spec)) else None

    return asking


def _as(type_: type[T]) -> Callable[[bytes], T | None]:
    def read(raw: bytes) -> T | None:
        try:
            return decode(raw, type_)
        except DecodeError as wrong:
            aside(f"passed over: {wrong}")
            return None

    return read


async def _read(
    client: Client,
    resource: Resource,
    read: Callable[[bytes], T | None],
    namespace: str | None = None,
    *,
    note: bool = True,
) -> tuple[T, ...] | None:
    """The objects of the kind. None where they may not be read, with a ``note``; empty where the kind is not
    installed.
    """
    try:
        listed = (await client.list_decoded(resource, read, Selection(namespace=namespace))).items
    except NotFoundError as failed:
        if not is_kind_missing(failed):
            raise
        return ()
    except ForbiddenError as failed:
        if note:
            aside(f"{resource.plural} are not looked at: {told(failed)}")
        return None
    return tuple(each for each in listed if each is not None)
