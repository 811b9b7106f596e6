"""A cluster's history while it happens, by a thread beside the scenes: what its API server, kubelets and hardware say.

The API server is asked as administrator, past whatever a scene puts between it and our own processes. Kinds come and go
with their CRDs; one that is not served has no objects. Nodes are looked at once a second: the judge minds nothing that
lasts less than five.
"""

import asyncio
import contextlib
import gzip
import random
import shutil
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import aclosing
from io import BytesIO
from pathlib import Path
from typing import Any, Final, Self

import grpc
import msgspec

from cli.audit.promises import promises
from cli.audit.recorder import Recorder
from cli.audit.watching_shell import ALSO, NEEDED
from controller.cluster.watching.kinds import DEVICE_CLAIMS, NAMESPACES
from hack.cluster.cluster import Cluster
from hack.cluster.errors import ClusterError
from hack.cluster.nodes.node import NodeHost
from history.record import Fact, read
from history.settings import Settings
from kube.client import Client, decoder
from kube.clock import Backoff, SystemClock, sleep
from kube.errors import KubeError, NotFoundError
from kube.kubeconfig import from_kubeconfig
from kube.resources import Resource
from kubeletapi import podresources_v1_pb2 as pb
from kubeletapi import podresources_v1_pb2_grpc as pb_grpc
from tests.support.e2e.devicelines import UNSEEN, Device, DeviceLines, claimed_devices

Json = dict[str, Any]
Gpus = Callable[[], Sequence[Json] | None]
"""The simulated GPUs of a node as the hardware tells them; None while there is none to ask. May raise what files do."""
INTERVAL_S: Final = 1.0
NAMESPACE: Final = "tessera-system"
_KINDS: Final = (*NEEDED, *ALSO, NAMESPACES)
_CRDS: Final = Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition")
_SLICES: Final = Resource("resource.k8s.io", "v1", "resourceslices", "ResourceSlice")
_BUILT_IN: Final = ("", "apps", "batch", "resource.k8s.io")
_JSON: Final = decoder(Json)
_CLOSING_S: Final = 0.25
"""TLS connections of a client that has ended close in the loop's next rounds."""
_AGAIN_S: Final = 10.0
"""A kind that should be served and is not is asked for again."""


def now_s() -> float:
    """By the clock of all records and scenes of this process."""
    return time.monotonic()


class _Meta(msgspec.Struct, frozen=True):
    name: str


class _Condition(msgspec.Struct, frozen=True):
    type: str
    status: str


class _Status(msgspec.Struct, frozen=True):
    conditions: tuple[_Condition, ...] = ()


class _Definition(msgspec.Struct, frozen=True):
    """Of a CRD what says whether it is served: its schemas are most of a cluster's bytes."""

    metadata: _Meta
    status: _Status = _Status()

    @property
    def is_served(self) -> bool:
        return any(each.type == "Established" and each.status == "True" for each in self.status.conditions)


class _Recorder(Recorder):
    """Also takes what other sources say."""

    def told(self, line: Mapping[str, object], now_s: float) -> None:
        self._line(self._at(now_s), **line)

    def there(self, resource: Resource) -> Iterable[Json]:
        return self._known.get(resource, {}).values()


class Recording:
    """Open it with ``with``. Lines are written by the thread alone; ``_lock`` guards those that nobody has taken yet.

    ``hardware`` says what GPUs a node has, by its name; who knows sets it.
    """

    def __init__(self, cluster: Cluster, path: Path, settings: Settings | None = None) -> None:
        self.cluster = cluster
        self.path = path
        self.hardware: dict[str, Gpus] = {}
        self.began_s = now_s()
        self._settings = settings or Settings(unmanaged=("kube-system", NAMESPACE))
        self._config: str | None = None
        self._lock = threading.Lock()
        self._lines: list[bytes] = []
        self._file = gzip.open(path, "wb", compresslevel=1)  # noqa: SIM115 - closed with the recording
        self._recorder = _Recorder(self._keep, self.began_s)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._end = asyncio.Event()
        self._started = threading.Event()
        self._failed: BaseException | None = None
        self._following: dict[Resource, asyncio.Task[None]] = {}
        self._thread = threading.Thread(target=self._run, name=f"recording {cluster.name}", daemon=True)
        self.cpu_s = 0.0
        """Of the thread, once it has ended."""

    def __enter__(self) -> Self:
        self._thread.start()
        self._started.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends it; what was told stays to be taken."""
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the thread, and its loop, have ended
                self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join()

    def take(self) -> list[Fact]:
        """What was told since the last call. Raises what ended the thread: a record that stands still says nothing."""
        if self._failed is not None:
            raise RuntimeError(f"the record of {self.cluster.name} broke off") from self._failed
        with self._lock:
            lines, self._lines = self._lines, []
        return list(read(BytesIO(b"".join(lines))))

    def promise(self, config: str) -> None:
        """A controller was started with this configuration."""
        self._call(self._promise(config))

    def tick(self) -> None:
        """Time has passed, though nobody said anything."""

        async def told() -> None:
            self._told({"source": "recorder", "type": "SIGHT", "what": "the time"})

        self._call(told())

    def save(self, path: Path) -> None:
        """A copy of the record so far."""

        async def saved() -> None:
            self._file.close()
            shutil.copy(self.path, path)
            self._file = gzip.open(self.path, "ab", compresslevel=1)  # noqa: SIM115 - closed with the recording

        self._call(saved())

    # -- the thread ----------------------------------------------------------------------------------------------------

    def _call(self, work: Coroutine[Any, Any, None]) -> None:
        if self._loop is None or not self._thread.is_alive():
            work.close()
            return
        with contextlib.suppress(TimeoutError):
            asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout=_AGAIN_S)

    def _keep(self, line: bytes) -> None:
        self._file.write(line)
        with self._lock:
            self._lines.append(line)

    def _run(self) -> None:
        try:
            asyncio.run(self._work())
        except BaseException as error:  # noqa: BLE001 - told to whoever takes lines
            self._failed = error
        finally:
            self._started.set()
            self._file.close()
            self.cpu_s = time.thread_time()

    async def _work(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._recorder.begin({}, self._settings, (UNSEEN,))
        self._started.set()
        async with Client(from_kubeconfig(self.cluster.kubeconfig), timeout_s=20.0) as client:
            tasks = [asyncio.create_task(self._follow_kinds(client))]
            tasks += [asyncio.create_task(self._look(client, host)) for host in self.cluster.nodes]
            tasks += [asyncio.create_task(self._end.wait())]  # type: ignore[arg-type]
            try:
                done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                for each in done:
                    each.result()
            finally:
                every = [*tasks, *self._following.values()]
                for each in every:
                    each.cancel()
                await asyncio.gather(*every, return_exceptions=True)
        self._recorder.end(now_s())
        await asyncio.sleep(_CLOSING_S)

    def _told(self, line: Mapping[str, object]) -> None:
        self._recorder.told(line, now_s())

    # -- what controllers promise --------------------------------------------------------------------------------------

    async def _promise(self, config: str) -> None:
        self._config = config
        self._settings = self._reckoned(config)
        self._tell_settings()  # also where they are the same: this controller may know nothing of what another did

    def _reckoned(self, config: str) -> Settings:
        """The configuration says by the labels of namespaces which are managed."""
        labels = [each["metadata"].get("labels") or {} for each in self._recorder.there(NAMESPACES)]
        return promises(config, NAMESPACE, labels)[0]

    def _tell_settings(self) -> None:
        self._told({"source": "recorder", "type": "SETTINGS", "settings": msgspec.to_builtins(self._settings)})

    # -- the API server ------------------------------------------------------------------------------------------------

    async def _follow_kinds(self, client: Client) -> None:
        """Follows what the API server has from the beginning, and what a CRD adds as it comes."""
        by_crd = {f"{each.plural}.{each.group}": each for each in _KINDS if each.group not in _BUILT_IN}
        for resource in _KINDS:
            if resource.group in _BUILT_IN:
                self._begin(client, resource)
        while True:
            with contextlib.suppress(KubeError):
                listing = await client.list_decoded(_CRDS, decoder(_Definition))
                for item in listing.items:
                    self._heed(client, item, by_crd)
                watch = client.watch_decoded(
                    _CRDS, decoder(_Definition), resource_version=listing.resource_version, timeout_s=3600
                )
                async with aclosing(watch) as events:
                    async for event in events:
                        if event.object is not None and event.type != "DELETED":
                            self._heed(client, event.object, by_crd)
            await asyncio.sleep(INTERVAL_S)

    def _heed(self, client: Client, definition: _Definition, by_crd: Mapping[str, Resource]) -> None:
        resource = by_crd.get(definition.metadata.name)
        if resource is not None and definition.is_served:
            self._begin(client, resource)

    def _begin(self, client: Client, resource: Resource) -> None:
        if resource not in self._following or self._following[resource].done():
            self._following[resource] = asyncio.create_task(self._follow(client, resource))

    async def _follow(self, client: Client, resource: Resource) -> None:
        """Until it is cancelled, or its CRD is gone. While a watch or list fails the record is blind for the kind."""
        backoff = Backoff(random=random.random, initial_s=0.2, maximum_s=2.0)
        clock, known = SystemClock(), None
        while True:
            try:
                if known is None:
                    listing = await client.list_decoded(resource, _JSON)
                    self._recorder.relisted(resource, listing.items, now_s())
                    known = listing.resource_version
                    self._changed(resource)
                async for type_, version, item in _events(client, resource, known):
                    known = version or known
                    backoff.reset()
                    if item is not None:
                        self._recorder.changed(resource, type_, item, now_s())
                        self._changed(resource)
            except NotFoundError:
                self._recorder.relisted(resource, (), now_s())
                if resource.group not in _BUILT_IN:
                    return
                known = None
                await asyncio.sleep(_AGAIN_S)
            except KubeError:
                known = None
                self._recorder.blinded(resource, now_s())
                await sleep(clock, backoff.next())

    def _changed(self, resource: Resource) -> None:
        """Namespaces come and go, and what is promised of them with them."""
        if resource == NAMESPACES and self._config is not None:
            settings = self._reckoned(self._config)
            if settings != self._settings:
                self._settings = settings
                self._tell_settings()

    # -- nodes ---------------------------------------------------------------------------------------------------------

    async def _look(self, client: Client, host: NodeHost) -> None:
        """What the kubelet and the hardware say, whenever it is something else. One that is silent says nothing."""
        lines, published = DeviceLines(host.name), dict[Device, Json]()
        socket = f"unix:{host.kubelet_dir}/pod-resources/kubelet.sock"
        while True:
            with contextlib.suppress(grpc.RpcError, KubeError, OSError, ClusterError, ValueError):
                listed, offered, gpus = await asyncio.to_thread(self._asked, socket, host.name)
                if not claimed_devices(listed) <= published.keys():
                    published = await _published(client)
                for line in lines.lines(listed, offered, gpus, published, self._watched()):
                    self._told(line)
            await asyncio.sleep(INTERVAL_S)

    def _asked(
        self, socket: str, node: str
    ) -> tuple[pb.ListPodResourcesResponse, pb.AllocatableResourcesResponse, Sequence[Json] | None]:
        with grpc.insecure_channel(socket) as channel:
            stub = pb_grpc.PodResourcesListerStub(channel)
            listed = stub.List(pb.ListPodResourcesRequest(), timeout=10)
            offered = stub.GetAllocatableResources(pb.AllocatableResourcesRequest(), timeout=10)
        gpus = self.hardware.get(node)
        return listed, offered, gpus() if gpus is not None else None

    def _watched(self) -> set[tuple[str, str]]:
        """Claims with a device that they have with admin access."""
        return {
            (f"{claim['metadata'].get('namespace')}/{claim['metadata']['name']}", result["device"])
            for claim in self._recorder.there(DEVICE_CLAIMS)
            for result in claim.get("status", {}).get("allocation", {}).get("devices", {}).get("results", [])
            if result.get("adminAccess")
        }


async def _events(client: Client, resource: Resource, version: str) -> AsyncIterator[tuple[str, str, Json | None]]:
    async with aclosing(client.watch_decoded(resource, _JSON, resource_version=version)) as events:
        async for event in events:
            yield event.type, event.resource_version, event.object


async def _published(client: Client) -> dict[Device, Json]:
    """Raises KubeError."""
    listing = await client.list_decoded(_SLICES, _JSON)
    return {
        (each["spec"]["driver"], each["spec"]["pool"]["name"], device["name"]): device
        for each in listing.items
        for device in each["spec"].get("devices", ())
    }
