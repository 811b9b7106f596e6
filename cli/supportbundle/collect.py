"""A support bundle's files, read from the API server and the controller with the caller's rights.

No file is written before it went through the scrubber, which knows all names only when all objects were read.
"""

import secrets
from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec

from cli.access.cluster import Controller, UnreachableError, Where, told
from cli.printing.console import Json
from cli.supportbundle import parts
from cli.supportbundle.scrub import OURS, Scrubber
from cli.version import agents
from controller.cluster.watching.kinds import (
    CHECKS,
    CLUSTER_QUEUES,
    COHORTS,
    FLAVORS,
    GPU_NODES,
    LOCAL_QUEUES,
    NAMESPACES,
    TOPOLOGIES,
    WORKLOAD_CLASSES,
    WORKLOADS,
)
from inventory import __version__
from kube.client import Client, Selection
from kube.errors import KubeError
from kube.resources import EVENTS, NODES, PODS, Resource

CONFIG_MAPS: Final = Resource("", "v1", "configmaps", "ConfigMap", namespaced=True)
MOST: Final = 5000
"""The most objects of one kind."""
LOG_BYTES: Final = 2 * 1024 * 1024
LOGGED_PODS: Final = 12

_KINDS: Final[tuple[tuple[str, Resource, Callable[[Json], Json]], ...]] = (
    ("gpunodes.json", GPU_NODES, parts.gpu_node),
    ("nodes.json", NODES, parts.node),
    ("clusterqueues.json", CLUSTER_QUEUES, parts.whole),
    ("localqueues.json", LOCAL_QUEUES, parts.whole),
    ("cohorts.json", COHORTS, parts.whole),
    ("resourceflavors.json", FLAVORS, parts.whole),
    ("topologies.json", TOPOLOGIES, parts.whole),
    ("admissionchecks.json", CHECKS, parts.whole),
    ("workloadpriorityclasses.json", WORKLOAD_CLASSES, parts.whole),
    ("workloads.json", WORKLOADS, parts.workload),
)
README: Final = """\
What this is: state of a Tessera installation, for a bug report.

Left out: Secrets, tokens and what looks like them, pod templates with their commands and environments, managed fields.
Names of namespaces, workloads, jobs, pods, LocalQueues and users are pseudonyms, the same in all files, but for the
namespaces that kept.json names. notes.txt says what could not be read. Look through it before you hand it on.
"""


class Bundle(msgspec.Struct, frozen=True):
    """The files of a bundle. ``files`` are by path, scrubbed; ``notes`` are the objects that could not be read."""

    files: dict[str, bytes]
    notes: tuple[str, ...]


class Collector:
    """Reads all objects, and only then scrubs them."""

    def __init__(self, client: Client, where: Where, kept: Iterable[str], tail: int) -> None:
        self._client = client
        self._where = where
        self._kept = frozenset(kept)
        self._tail = tail
        self._space = where.controller.partition("/")[0]
        self._notes: list[str] = []
        self._read: dict[str, tuple[Json, ...]] = {}

    async def collect(self) -> Bundle:
        raw: dict[str, Any] = {"versions.json": await self._versions()}
        namespaces = await self._list(NAMESPACES)
        for file, resource, keep in _KINDS:
            raw[file] = [keep(each) for each in (await self._list(resource))[:MOST]]
        raw["events.json"] = [parts.event(each) for each in await self._events()]
        maps = filter(parts.of_tessera, await self._list(CONFIG_MAPS, self._space))
        raw["config.json"] = [parts.whole(each) for each in maps]
        pods = tuple(filter(parts.of_tessera, await self._list(PODS, self._space)))
        raw["pods.json"] = [parts.own_pod(each) for each in pods]
        logs = await self._logs(pods)
        raw["kept.json"] = sorted(self._kept)
        scrubber = Scrubber(_key(namespaces), parts.names(self._read.items(), self._stays), (*self._kept, self._space))
        files = {file: _json(scrubber.value(body)) for file, body in raw.items()}
        files |= {file: scrubber.text(text).encode() for file, text in logs.items()}
        files["notes.txt"] = scrubber.text("".join(f"{note}\n" for note in self._notes)).encode()
        files["README.txt"] = README.encode()
        return Bundle(files, tuple(self._notes))

    def _stays(self, namespace: str) -> bool:
        return namespace in (*self._kept, self._space) or OURS.fullmatch(namespace) is not None

    async def _list(self, resource: Resource, namespace: str | None = None) -> tuple[Json, ...]:
        try:
            objects = (await self._client.list_all(resource, Json, Selection(namespace))).items
        except KubeError as failed:
            self._notes.append(f"{resource.plural}: {told(failed)}")
            objects = ()
        if len(objects) > MOST:
            self._notes.append(f"{resource.plural}: {MOST} of {len(objects)} are kept")
        self._read[resource.kind] = objects
        return objects

    async def _events(self) -> list[Json]:
        """The newest Events."""
        found = [each for each in await self._list(EVENTS) if parts.concerns(each, self._space)]
        when = ("eventTime", "deprecatedLastTimestamp")
        found.sort(key=lambda each: next((str(each[key]) for key in when if each.get(key)), ""))
        return found[-MOST:]

    async def _versions(self) -> Json:
        versions: Json = {"client": __version__}
        try:
            versions["kubernetes"] = msgspec.json.decode(await self._client.text("/version"))
            versions["controller"] = await Controller(self._where, self._where.cluster(), self._client).ask("version")
        except (KubeError, UnreachableError, msgspec.MsgspecError) as failed:
            self._notes.append(f"versions: {failed}")
        versions["agents"] = agents(await self._list(GPU_NODES))
        return versions

    async def _logs(self, pods: Iterable[Json]) -> dict[str, str]:
        """The tails of the logs of the controller and of some agents: those that are not well come first."""
        logs: dict[str, str] = {}
        for pod in sorted(pods, key=_is_well)[:LOGGED_PODS]:
            name = str(pod["metadata"]["name"])
            statuses = (pod.get("status") or {}).get("containerStatuses") or []
            restarted = {each.get("name") for each in statuses if each.get("restartCount")}
            for container in (pod.get("spec") or {}).get("containers") or []:
                for before in (False, True) if container.get("name") in restarted else (False,):
                    file = f"logs/{name}.{container.get('name')}{'.previous' if before else ''}.log"
                    text = await self._log(name, str(container.get("name")), before)
                    if text is not None:
                        logs[file] = text
        return logs

    async def _log(self, pod: str, container: str, before: bool) -> str | None:
        asked = {"container": container, "tailLines": str(self._tail), "limitBytes": str(LOG_BYTES)}
        path = PODS.path(pod, namespace=self._space, subresource="log")
        try:
            raw = await self._client.text(path, asked | ({"previous": "true"} if before else {}))
        except KubeError as failed:
            self._notes.append(f"log of {pod}: {told(failed)}")
            return None
        return raw.decode(errors="replace")


def _is_well(pod: Json) -> tuple[bool, bool, str]:
    """The sort key of a pod: those that restarted or are not ready first, the controller's before agents'."""
    status, metadata = pod.get("status") or {}, pod["metadata"]
    statuses = status.get("containerStatuses") or []
    well = all(each.get("ready") and not each.get("restartCount") for each in statuses) and bool(statuses)
    agent = (metadata.get("labels") or {}).get("app.kubernetes.io/component") == "agent"
    return well, agent, str(metadata.get("name"))


def _key(namespaces: Iterable[Json]) -> bytes:
    """The key of pseudonyms: the uid of kube-system, which is random and in no file of the bundle; where it is unknown,
    a random key.
    """
    system = (each["metadata"] for each in namespaces if each["metadata"].get("name") == "kube-system")
    uid = next((str(each["uid"]) for each in system if each.get("uid")), "")
    return uid.encode() or secrets.token_bytes(16)


def _json(value: Any) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"
