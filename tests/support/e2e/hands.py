"""Whether any GPU, or a part of one, is in two hands: asked of the kubelet, the API server and the hardware all the
time and after each step of a scene, never of the agent. The rules stand in ``tests/support/agent/hands.py``.
"""

import contextlib
import threading
import time
from collections.abc import Iterator
from http.client import HTTPException

import grpc

from hack.cluster.errors import ClusterError
from kubeletapi import podresources_v1_pb2 as pb
from kubeletapi import podresources_v1_pb2_grpc as pb_grpc
from simulator.hardware.status import describe
from simulator.hardware.store import STATE_FILE, StoreError, read
from tests.support.agent.hands import Json, Read, Sight, sight
from tests.support.e2e import judged
from tests.support.e2e.lab import STEPS, Lab

INTERVAL_S = 0.25
SOON_S = 40.0
"""A claim that ends, or a killed agent that starts again, leaves an instance alone for so long at most."""
_SILENT = (grpc.RpcError, ClusterError, HTTPException, KeyError, OSError, StoreError, ValueError)
"""What a kubelet or an API server that a scene takes away does, or says."""


class Hands:
    """Looks at one node while it has agents. ``_odd`` says since when something is not as it should be.

    All of it is changed under ``_looking``: a thread looks beside the steps.
    """

    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self._odd: dict[str, float] = {}
        self._looking = threading.Lock()
        self.looks = 0
        self.seen: set[str] = set()
        """Kinds of hands that were seen at all: without them nothing was checked."""
        self.violations: set[str] = set()

    @contextlib.contextmanager
    def watching(self) -> Iterator["Hands"]:
        """Look until the block ends, and after each step."""
        judged.hardware(self._lab.cluster, self._lab.host.name, self.hardware)
        ended = threading.Event()

        def look() -> None:
            while not ended.wait(INTERVAL_S):
                self.look()

        thread = threading.Thread(target=look, name="hands", daemon=True)
        thread.start()
        STEPS.append(self.check)
        try:
            yield self
        finally:
            STEPS.remove(self.check)
            ended.set()
            thread.join()

    def check(self) -> None:
        """Look now. AssertionError where anything is, or ever was, in two hands."""
        self.look()
        assert not self.violations, f"in two hands: {sorted(self.violations)}"

    def look(self) -> None:
        """One look, and another where something is wrong in it: what is read is not of one moment.

        What was odd before a look that fails counts anew after it: it may have been mended meanwhile.
        """
        with self._looking:
            if not self._lab.agents:
                return
            try:
                found = self._sight()
                wrong = found.violations & self._sight().violations if found.violations else set()
            except _SILENT:
                self._odd = {}
                return
            self.looks += 1
            self.seen |= found.kinds
            now = time.monotonic()
            self._odd = {line: self._odd.get(line, now) for line in found.odd}
            self.violations |= wrong | {line for line, since in self._odd.items() if now - since > SOON_S}

    def _sight(self) -> Sight:
        # Claims first: one that goes may free a device for the plugin before the next answer.
        claims = self._items("resourceclaims")
        return sight(Read(self._items("resourceslices"), claims, self._kubelet(), self.hardware()))

    def _items(self, plural: str) -> list[Json]:
        found: list[Json] = self._lab.get(f"/apis/resource.k8s.io/v1/{plural}").get("items", [])
        return found

    def hardware(self) -> list[Json] | None:
        """The simulated GPUs by their own file, of an agent that runs and could mend them. None while there is none,
        or where hardware of another kind is below it.
        """
        for agent in tuple(self._lab.agents):
            process = agent.process
            hardware = read(agent.state_dir / STATE_FILE) if process is not None and process.poll() is None else None
            if hardware is not None:
                gpus: list[Json] = describe(hardware, 0.0)["gpus"]
                return gpus
        return None

    def _kubelet(self) -> pb.ListPodResourcesResponse:
        with grpc.insecure_channel(f"unix:{self._lab.host.kubelet_dir}/pod-resources/kubelet.sock") as channel:
            return pb_grpc.PodResourcesListerStub(channel).List(pb.ListPodResourcesRequest(), timeout=10)
