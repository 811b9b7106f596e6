"""Claims prepared and given back in any order, the agent killed at any write, step or journal entry: after the next
start the hardware has what the ledger says, and nothing else.
"""

import asyncio
import tempfile
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import structs

from agent.config.load import load
from agent.deviceaccess import DeviceAccess
from agent.dra.claim import ClaimError, Ref, Result, Taken
from agent.dra.files_shell import ClaimFiles
from agent.dra.ledger import Ledger, Stage
from agent.dra.node import DraNode
from agent.hardware.gpus import read_gpu
from agent.mig.outcomes import MigState
from agent.nodestate import Choices, NodeState
from inventory.devices import GpuUuid, NodeInventory, NodeName
from inventory.layout.entries import Dra
from inventory.links import Link
from tests.support.agent.gpuchange import H100, Bench, bench

DEVICES = ("gpu-0", "gpu-0-mig-4g40gb-5-0", "gpu-0-mig-3g40gb-9-4", "gpu-0-mig-1g10gb-19-6", "gpu-0-mig-1g10gb-19-3")
NODE = "node-1"


class Killed(Exception):  # noqa: N818 - the end of a process, not an error
    """Nothing that comes after it in this life may leave a trace."""


class Life:
    """One agent's driver and MIG planner on the bench; ``left`` writes and steps until it is killed."""

    def __init__(self, folder: Path, b: Bench, left: int) -> None:
        self._left = left
        self._bench = b
        b.at = self._at
        (folder / "config.yaml").write_text("version: v1\n")
        flags = {
            "--config": str(folder / "config.yaml"),
            "--node-name": NODE,
            "--state-dir": str(folder / "agent"),
            "--cdi-dir": str(folder / "cdi"),
            "--kubeconfig": "none",
            "--simulate": str(folder / "fleet.yaml"),
        }
        self.settings = load(None, {}, flags).settings
        self.node_state = NodeState(NodeName(NODE), Choices(), {b.uuid: Dra()})
        self.node_state._held = {}  # its holders are known
        self.access = DeviceAccess(self.settings, self.node_state)
        self.discover()
        self.dra = DraNode(
            self.node_state, self.settings, self.access, lambda: None, lambda: None, frozenset, self.bring, self
        )
        self._marked(self.dra._preparer._files)

    async def ready(self, devices: Collection[str], within_s: float) -> str:  # noqa: ARG002 - as the protocol
        """No claim here asks for MPS."""
        return "never" if devices else ""

    async def ended(self, devices: Collection[str]) -> None:
        assert not devices

    def _at(self, _: str) -> None:
        if self._left <= 0:
            self._left = 0
            raise Killed
        self._left -= 1

    def _marked(self, files: ClaimFiles) -> None:
        """Each write of a file, before and after it, is a place where a kill may come."""

        def around(write: Callable[..., Any]) -> Callable[..., Any]:
            async def wrapped(*args: Any) -> None:
                self._at("before a file")
                await write(*args)
                self._at("after a file")

            return wrapped

        for name in ("save", "write", "remove"):
            setattr(files, name, around(getattr(files, name)))

    def discover(self) -> None:
        gpu = read_gpu(self._bench.handle, 0, self.settings.sys_root)
        node = NodeInventory(NodeName(NODE), "550.1.1", (12, 4), (gpu,), ((Link(),),))
        self.node_state.modes = {gpu.uuid: Dra()}
        self.node_state.node = node
        self.node_state.health.discovered(node.gpus, 0.0)
        self.node_state.access = self.access.files.access(node)

    async def bring(self, gpu: GpuUuid, ready: Callable[[], bool], within_s: float) -> str:  # noqa: ARG002 - Bring's
        """As the reconciler does at each turn."""
        found = self.node_state.node.gpu(gpu)
        assert found is not None
        wish = self.dra.wish(found)
        if wish is not None:
            outcome = await self._bench.change().bring(wish)
            assert outcome.state is MigState.APPLIED, outcome
            self.discover()
        assert ready()
        return ""

    async def start(self) -> None:
        """What the agent does first: the wishes are looked at, and the specs of claims written anew."""
        await self.bring(self._bench.uuid, lambda: True, 1.0)
        await self.dra._preparer.renew_specs()

    async def step(self, prepare: bool, uid: str, devices: Iterable[str]) -> None:
        if prepare and self.dra._ledger.answered(uid) is None:
            results = tuple(Result("gpu", "gpu.nvidia.com", NODE, device) for device in devices)
            await self.dra._preparer.take(
                Taken(Ref("team", uid, uid), (f"pod-{uid}",), results, tuple(() for _ in results))
            )
        elif not prepare:
            await self.dra._preparer.give_back(uid)

    async def again(self, uid: str) -> str:
        """The kubelet's call for a claim that has its answer."""
        answers = await self.dra.prepare([Ref("team", uid, uid)])
        return answers[uid].error

    def renumber(self, minor: int) -> None:
        """The driver gave the GPU other device files, and nothing else has been done about it."""
        gpu = structs.replace(self.node_state.node.gpus[0], minor=minor)
        self.node_state.access = self.access.files.access(structs.replace(self.node_state.node, gpus=(gpu,)))

    @property
    def held(self) -> dict[str, list[str]]:
        ledger: Ledger = self.dra._ledger
        ledger.validate()
        assert all(claim.stage is Stage.COMPLETED for claim in ledger.entries), "half a claim between two calls"
        return {claim.uid: sorted(device.device for device in claim.devices) for claim in ledger.entries}

    def agrees(self, folder: Path) -> None:
        """The hardware and the specs are what the ledger says."""
        devices = [device for claim in self.dra._ledger.entries for device in claim.devices]
        slots = sorted((device.slot.profile, device.slot.start) for device in devices if device.slot is not None)
        mig = self._bench.mig()
        assert sorted((each.profile, each.start) for each in mig.instances) == slots
        assert all(len(each.computes) == 1 for each in mig.instances), "half an instance"
        assert not (mig.enabled and any(device.slot is None for device in devices)), "a whole GPU in MIG mode"
        specs = {path.name.split("_")[1].removesuffix(".json") for path in (folder / "cdi").glob("*claim_*")}
        assert specs == set(self.held)


STEPS = st.lists(
    st.tuples(
        st.booleans(),
        st.sampled_from(["a", "b", "c"]),
        st.lists(st.sampled_from(DEVICES), min_size=1, max_size=2, unique=True),
        st.sampled_from([99, 99, *range(26)]),
    ),
    min_size=1,
    max_size=6,
)


@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow])
@given(STEPS)
def test_after_a_kill_anywhere_the_hardware_has_what_the_ledger_says(
    steps: list[tuple[bool, str, list[str], int]],
) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with bench(folder, H100, "") as b:
            asyncio.run(lives(folder, b, steps))


async def lives(folder: Path, b: Bench, steps: list[tuple[bool, str, list[str], int]]) -> None:
    (folder / "cdi").mkdir()
    life = Life(folder, b, 10_000)
    await life.start()
    for prepare, uid, devices, left in steps:
        before = life.held
        life._left = left
        killed = refused = False
        try:
            await life.step(prepare, uid, devices)
        except Killed:
            killed = True
        except ClaimError:
            refused = True
        if killed:
            life = Life(folder, b, 10_000)
            await life.start()
        life._left = 10_000
        life.agrees(folder)
        others = {claim: found for claim, found in before.items() if claim != uid}
        assert {claim: found for claim, found in life.held.items() if claim != uid} == others
        if refused:
            assert life.held == before
        elif not killed:
            assert (uid in life.held) == prepare


def test_a_repeated_prepare_answers_with_a_spec_that_is_there_and_true_whenever_it_is_killed() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with bench(folder, H100, "") as b:
            asyncio.run(repeated(folder, b))


def test_what_was_being_written_when_the_agent_was_killed_is_removed() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with bench(folder, H100, "") as b:
            asyncio.run(left_over(folder, b))


async def left_over(folder: Path, b: Bench) -> None:
    cdi = folder / "cdi"
    cdi.mkdir()
    half, others = cdi / ".k8s.gpu.nvidia.com-claim_a.json.x7mj3kd", cdi / ".another.json.x7mj3kd"
    half.write_bytes(b"{")
    others.write_bytes(b"{")
    await Life(folder, b, 10_000).start()
    assert (half.exists(), others.exists()) == (False, True)


async def repeated(folder: Path, b: Bench) -> None:
    (folder / "cdi").mkdir()
    life = Life(folder, b, 10_000)
    await life.start()
    await life.step(prepare=True, uid="a", devices=["gpu-0"])
    (spec,) = (folder / "cdi").glob("*claim_a.json")
    before = spec.stat()
    assert await life.again("a") == ""
    assert spec.stat() == before, "nothing is written for an answer that stands"
    finished = 0
    for left in range(8):
        for minor in (None, 7):
            spec.unlink()
            if minor is not None:
                await life.again("a")
                life.renumber(minor)
            life._left = left
            try:
                assert await life.again("a") == ""
            except Killed:
                life = Life(folder, b, 10_000)
                await life.start()
            else:
                finished += 1
                assert f"/dev/nvidia{minor or 0}" in spec.read_text()
            life._left = 10_000
            life.discover()
            assert await life.again("a") == ""
            assert '"/dev/nvidia0"' in spec.read_text()
            assert life.held == {"a": ["gpu-0"]}
    assert 0 < finished < 16, "some were killed, and not all"
