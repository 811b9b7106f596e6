"""An agent that is killed at its failpoints, on a node whose history is judged.

The GPUs are simulated, the kubelet is the stand-in, the API server is in this process. The history is what the kubelet
says of pods and claims, and what the hardware has.
"""

import asyncio
import contextlib
import inspect
import io
import json
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final, NamedTuple

import grpc.aio

from agent.cluster.apireporter import ApiReporter
from agent.dra.claim import RESOURCE_CLAIMS
from agent.dra.publishing.slices import RESOURCE_SLICES
from agent.dra.testing import TEAM, PluginWatcher
from failpoints.names import Failpoint
from hack.failpoints.armed import Moment, Point
from history.judge import Finding, judged
from history.record import read
from inventory.layout.layout import physical_id
from kube.errors import ConflictError
from kube.resources import NODES
from kube.testing import FakeApiServer, eventually
from simulator.boards import migstate
from tests.support.agent.node import Lab
from tests.support.failpoints.deaths import DeadError, Deaths, DiedError
from tests.support.hang import HANG_S

Json = dict[str, Any]
NODE: Final = "node-1"
STEP_S: Final = 0.2
DEAD_S: Final = 15.0
"""A dead agent stays away so long: what it left is judged by every rule that counts seconds."""
END_S: Final = 1000.0


_TRIED_AGAIN: Final = (grpc.aio.AioRpcError, asyncio.CancelledError, LookupError, ValueError)
"""What a kubelet gets where the agent is not there, not yet registered, or has died."""


def _error(deed: asyncio.Future[object]) -> BaseException | None:
    """How a deed that is done has failed. The agent's death cancels calls to the kubelet in the middle of it."""
    return asyncio.CancelledError() if deed.cancelled() else deed.exception()


async def _awaited(deed: Callable[[], Awaitable[object] | object]) -> object:
    found = deed()
    return await found if inspect.isawaitable(found) else found


class Stage(NamedTuple):
    """``deed`` is done, again by whoever is told to do it where the agent died of it; then ``until`` comes true."""

    deed: Callable[[], Awaitable[object] | object]
    until: Callable[[], bool]
    what: str


class Act(NamedTuple):
    """``stages`` on a node of ``product``; ``config`` is the agent's at first."""

    name: str
    failpoints: tuple[Failpoint, ...]
    stages: Callable[["KilledNode", str], list[Stage]]
    config: str
    fleet: str

    @property
    def points(self) -> list[Point]:
        return [Point(failpoint, moment) for failpoint in self.failpoints for moment in Moment]


class KilledNode:
    """One node, with an agent that lives again and again."""

    def __init__(self, lab: Lab, server: FakeApiServer, deaths: Deaths, config: str) -> None:
        self.lab = lab
        self.server = server
        self.deaths = deaths
        self.config = config
        self.deaths_so_far = 0
        self.watcher = PluginWatcher(lab.folder / "kubelet")
        self.prepared: set[str] = set()
        """Claims that the kubelet has had an answer for."""
        self._lines: list[Json] = []
        self._told: dict[str, object] = {}
        server.install(RESOURCE_SLICES)
        server.create(NODES, NODE, {"metadata": {"labels": {"kubernetes.io/hostname": NODE}}})
        kubeconfig = lab.folder / "kubeconfig"
        kubeconfig.write_text(
            "apiVersion: v1\nkind: Config\ncurrent-context: test\n"
            f"clusters: [{{name: test, cluster: {{server: '{server.config.server}'}}}}]\n"
            "contexts: [{name: test, context: {cluster: test, user: test}}]\nusers: [{name: test, user: {}}]\n"
        )
        lab.flags["--kubeconfig"] = str(kubeconfig)

    # -- the agent -----------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Another life; it may die at once."""
        await self.lab.start(self.config, reporter=ApiReporter(self.lab.settings(self.config)))

    async def stop(self) -> None:
        await self.lab.stop()

    async def restart(self) -> None:
        await self.stop()
        await self.start()

    async def reconfigure(self, config: str) -> None:
        self.config = config
        await self.lab.agent.reconfigure(self.lab.settings(config))

    async def play(self, act: Act, number: int, point: Point | None = None) -> None:
        """One act with the running agent, which dies at ``point`` and is started again."""
        self.deaths.life(point)
        for stage in act.stages(self, f"{number}"):
            if not await self._do(stage, f"{point}"):
                await self._bury()
                await self.start()
                assert await self._do(stage, f"after a death at {point}")
        if point is not None and self.deaths.point is not None:
            # What was waited for was seen from outside before the agent came there itself.
            await eventually(lambda: self.deaths.is_dead, within_s=HANG_S, what=f"{act.name}: never came to {point}")
            await self._bury()
            await self.start()

    async def _do(self, stage: Stage, when: str) -> bool:
        """Whether ``until`` came true before the agent died. A deed that fails is tried again, as a kubelet does."""
        deed: asyncio.Future[object] | None = None

        def holds() -> bool:
            nonlocal deed
            self._look()
            if deed is None or (deed.done() and isinstance(_error(deed), _TRIED_AGAIN)):
                deed = asyncio.ensure_future(_awaited(stage.deed))
            return self.deaths.is_dead or (deed.done() and (_error(deed) is not None or stage.until()))

        try:
            await eventually(holds, within_s=HANG_S, what=f"it never came to this: {stage.what}, {when}")
        finally:
            if deed is not None:
                deed.cancel()
                with contextlib.suppress(asyncio.CancelledError, DiedError, DeadError, *_TRIED_AGAIN):
                    await deed
        return not self.deaths.is_dead

    async def _bury(self) -> None:
        """The dead agent is gone: nothing of it acts any more."""
        self.deaths_so_far += 1
        with contextlib.suppress(DiedError, DeadError, BaseExceptionGroup):
            await self.lab.stop()
        self.lab.nvml_ends()
        self._lines.append({"pause": True})
        self.deaths.life()

    # -- the kubelet ---------------------------------------------------------------------------------------------------

    async def allocate(self, pod: str, resource: str) -> None:
        """A pod gets one device; the kubelet asks again where it had no answer."""
        if (("default", pod)) not in self.lab.kubelet.pods:
            await self.lab.kubelet.allocate(resource, 1, pod=pod)

    async def prepare(self, uid: str) -> None:
        await self.watcher.register()
        answer = await self.watcher.prepare(uid)
        if answer[uid].error:
            raise LookupError(answer[uid].error)
        self.prepared.add(uid)

    async def unprepare(self, uid: str) -> None:
        await self.watcher.register()
        self.prepared.discard(uid)
        answer = await self.watcher.unprepare(uid)
        if answer[uid]:
            raise LookupError(answer[uid])

    # -- the history ---------------------------------------------------------------------------------------------------

    def _look(self) -> None:
        """What kubelet and hardware say, where it is other than before."""
        gpus = []
        for board, gpu in zip(self.lab.simulation.node.gpus, self.lab.simulation.hardware.gpus, strict=True):
            mig = [
                {"uuid": migstate.uuid(board.uuid, gi.id, ci.id), "profile": str(gi.profile)}
                for gi, ci in (gpu.mig.devices() if gpu.mig.enabled else ())
            ]
            gpus.append({"uuid": board.uuid, "replicas": 100, **({"mig": mig} if mig else {})})
        self._tell("hardware", {"gpus": gpus})
        pods = [
            {
                "namespace": namespace,
                "name": name,
                "containers": [
                    {
                        "name": "main",
                        "devices": [
                            {"resource": grant.resource, "ids": sorted({physical_id(one) for one in grant.devices})}
                            for grant in grants
                        ],
                    }
                ],
            }
            for (namespace, name), grants in sorted(self.lab.kubelet.pods.items())
        ]
        self._tell("kubelet", {"call": "PodResources", "pods": pods})

    def _tell(self, source: str, said: Json) -> None:
        if self._told.get(source) != said:
            self._told[source] = said
            self._lines.append({"source": source, "node": NODE, **said})

    def findings(self) -> tuple[Finding, ...]:
        return judged(read(io.BytesIO(b"".join(self._record())))).findings

    def _record(self) -> Iterator[bytes]:
        at_s = 0.0
        for line in self._lines:
            at_s += DEAD_S if "pause" in line else STEP_S
            if "pause" not in line:
                yield json.dumps({"t": round(at_s, 3), **line}).encode() + b"\n"
        yield json.dumps({"t": at_s + END_S, "source": "recorder", "type": "END"}).encode() + b"\n"

    # -- claims --------------------------------------------------------------------------------------------------------

    def claim(self, uid: str, device: str) -> None:
        """Allocated, and reserved for a pod of the same name."""
        results = [{"request": "gpu", "driver": "gpu.nvidia.com", "pool": NODE, "device": device}]
        status = {
            "allocation": {"devices": {"results": results, "config": []}},
            "reservedFor": [{"resource": "pods", "name": f"pod-{uid}", "uid": "p"}],
        }
        with contextlib.suppress(ConflictError):  # the agent died in this stage, and it is gone through again
            self.server.create(RESOURCE_CLAIMS, uid, {"metadata": {}, "status": status}, namespace=TEAM)
        self.server.store.objects[(RESOURCE_CLAIMS.path(), TEAM, uid)].body["metadata"]["uid"] = uid
