"""What counts as a reset, and what does not."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.hardware.driver import Driver
from agent.hardware.probe import Probe
from agent.hardware.resets import Renewals, ResetDetector
from inventory.devices import GpuUuid, NodeName
from tests.support.agent.node import Lab, fleet

GPU, OTHER = GpuUuid("GPU-0"), GpuUuid("GPU-1")


def probe(energy_mj: int | None = None, action: int | None = 0) -> Probe:
    return Probe(energy_mj=energy_mj, recovery_action=action)


def test_energy_that_grows_is_no_reset_and_energy_that_starts_anew_is_one() -> None:
    resets = ResetDetector()
    seen = [resets.observe(GPU, probe(energy), renewed=False) for energy in (100, 100, 250, 3, 7)]
    assert seen == [False, False, False, True, False]


def test_the_first_look_without_a_past_proves_nothing() -> None:
    assert not ResetDetector().observe(GPU, probe(5), renewed=False)


def test_energy_kept_over_a_restart_of_the_agent_shows_a_reset_meanwhile() -> None:
    before = ResetDetector()
    before.observe(GPU, probe(1000), renewed=False)
    after = ResetDetector(before.energy_mj)
    assert after.observe(GPU, probe(10), renewed=False)
    assert not after.observe(OTHER, probe(10), renewed=False)


def test_a_gpu_that_does_not_meter_its_energy_is_known_by_its_handle() -> None:
    resets = ResetDetector()
    assert not resets.observe(GPU, probe(None, None), renewed=False)
    assert resets.observe(GPU, probe(None, None), renewed=True)
    assert not resets.observe(GPU, probe(None, None), renewed=False)


def test_a_reset_is_told_once_the_driver_asks_for_nothing_more_and_then_only_once() -> None:
    resets = ResetDetector()
    assert not resets.observe(GPU, probe(action=1), renewed=True)
    assert not resets.observe(GPU, probe(action=2), renewed=False)
    assert not resets.observe(OTHER, probe(), renewed=False)
    assert resets.observe(GPU, probe(), renewed=False)
    assert not resets.observe(GPU, probe(), renewed=False)


def test_a_wish_of_the_driver_that_goes_by_itself_is_no_reset() -> None:
    resets = ResetDetector()
    assert [resets.observe(GPU, probe(action=action), renewed=False) for action in (1, 0)] == [False, False]


@given(st.lists(st.tuples(st.integers(0, 50), st.booleans(), st.sampled_from([None, 0, 1]))))
def test_no_reset_is_told_without_evidence_and_none_is_told_twice(looks: list[tuple[int, bool, int | None]]) -> None:
    resets = ResetDetector()
    evidence = 0
    before: int | None = None
    for energy, renewed, action in looks:
        evidence += renewed or (before is not None and energy < before)
        before = energy
        told = resets.observe(GPU, probe(energy, action), renewed=renewed)
        assert not (told and action)
        evidence = 0 if told else evidence
        assert not told or evidence == 0
        assert evidence == 0 or action, "evidence is told as soon as the driver asks for nothing"


# Evidence in handles


def test_a_dead_handle_beside_a_living_one_is_evidence_once() -> None:
    renewals = Renewals()
    renewals.answered(GPU, old_handle_works=False)
    assert [renewals.take(GPU), renewals.take(GPU)] == [True, False]


@pytest.mark.parametrize("old", [True, None])
def test_a_handle_that_is_only_another_one_is_no_evidence(old: bool | None) -> None:
    renewals = Renewals()
    renewals.answered(GPU, old_handle_works=old)
    assert not renewals.take(GPU)


def test_a_gpu_that_was_lost_and_is_handed_out_anew_was_reset() -> None:
    renewals = Renewals()
    renewals.lost(GPU)
    renewals.answered(OTHER, old_handle_works=None)
    assert not renewals.take(OTHER)
    renewals.answered(GPU, old_handle_works=None)
    assert renewals.take(GPU)


def test_a_gpu_called_lost_whose_handle_still_works_was_not_reset() -> None:
    renewals = Renewals()
    renewals.lost(GPU)
    renewals.answered(GPU, old_handle_works=True)
    renewals.answered(GPU, old_handle_works=None)
    assert not renewals.take(GPU)


def test_a_gpu_that_was_taken_out_and_put_back_was_not_thereby_reset() -> None:
    renewals = Renewals()
    renewals.lost(GPU)
    renewals.keep([OTHER])
    renewals.answered(GPU, old_handle_works=None)
    assert not renewals.take(GPU)


# The same on simulated hardware: what handles alone show.


@pytest.fixture
async def driver(lab: Lab) -> AsyncIterator[Driver]:
    lab.state_dir.mkdir()
    lab.power_on(fleet(2))
    driver = Driver(NodeName("node-1"), lab.state_dir / "simulated/sys", lambda *_: None)
    await driver.open()
    yield driver
    await driver.close()


async def sightings(lab: Lab, driver: Driver) -> list[bool]:
    return [(await driver.probe(lab.uuid(index), 5)).reset for index in (0, 1)]


async def test_a_reset_just_before_a_discovery_is_told_by_the_next_probe(lab: Lab, driver: Driver) -> None:
    node = (await driver.discover(())).node
    lab.sim(gpu=0, reset=True)
    await driver.discover(node.gpus)
    assert await sightings(lab, driver) == [True, False]
    assert await sightings(lab, driver) == [False, False]


async def test_a_lost_gpu_reset_while_no_session_is_open_is_told(lab: Lab, driver: Driver) -> None:
    node = (await driver.discover(())).node
    lab.sim(gpu=0, lost=True)
    known = (await driver.discover(node.gpus)).node.gpus
    assert [gpu.readable for gpu in known] == [False, True]
    await driver.close()
    lab.sim(gpu=0, reset=True)
    await driver.open()
    await driver.discover(known)
    assert await sightings(lab, driver) == [True, False]


async def test_discovering_again_and_again_is_no_reset(lab: Lab, driver: Driver) -> None:
    known = (await driver.discover(())).node.gpus
    for _ in range(3):
        known = (await driver.discover(known)).node.gpus
        await asyncio.sleep(0)
    assert await sightings(lab, driver) == [False, False]
