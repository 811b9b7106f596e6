"""One GPU's change on simulated hardware: what stays, what goes, what is said, and that nothing is left half-way."""

from pathlib import Path

import pynvml
import pytest

from agent.hardware.migchange import take
from agent.hardware.query import CallFailed
from agent.mig.outcomes import MigState, Wish
from agent.words import mig as words
from inventory.layout.entries import WhenBusy
from inventory.mig.parts import Part
from inventory.mig.plan import CreateInstance, DestroyCompute, DestroyInstance, Step
from simulator.boards.loads import Load
from simulator.fleet.orders import End, Reboot, SetLoad
from tests.support.agent.gpuchange import A30, H100, bench


async def test_only_the_difference_is_made(tmp_path: Path) -> None:
    with bench(tmp_path, more="  mig: {0: [4g.20gb, 2g.10gb]}\n") as b:
        busy = b.device(0)
        b.pods = {busy: ["ml/train-0"]}
        outcome = await b.bring("1g.5gb", "4g.20gb", "1g.5gb")
        assert (outcome.state, outcome.sentence, outcome.changed) == (MigState.APPLIED, "", True)
        assert b.device(0) == busy
        assert sorted(profile for profile, _ in b.layout()) == ["1g.5gb", "1g.5gb", "4g.20gb"]
        assert all(step.start != 0 for step in b.steps)
        assert b.kept == [frozenset({busy})], "what stays is offered all the time, what goes is not"
        b.steps.clear()
        again = await b.bring("4g.20gb", "1g.5gb", "1g.5gb")
        assert (again.state, again.changed, b.steps) == (MigState.APPLIED, False, [])


async def test_what_an_interrupted_change_has_made_is_nobodys_until_all_of_it_is_there(tmp_path: Path) -> None:
    class Killed(BaseException):
        pass

    def kill(word: str) -> None:
        if word.startswith("after CreateCompute"):
            raise Killed

    with bench(tmp_path, more="  mig: {0: [4g.20gb, 3g.20gb]}\n") as b:
        stays = b.device(0)
        b.at = kill
        with pytest.raises(Killed):
            await b.bring("4g.20gb", "1g.5gb", "1g.5gb")
        b.at = lambda _: None
        made = set(b.mig().uuids.values()) - {stays}
        assert len(made) == 1
        outcome = await b.bring("4g.20gb", "1g.5gb", "1g.5gb")
        assert (outcome.state, len(b.layout())) == (MigState.APPLIED, 3)
        assert b.kept[-1] == {stays}


async def test_what_is_in_the_way_is_named_and_nothing_is_touched(tmp_path: Path) -> None:
    with bench(tmp_path, more="  mig: {0: [3g.20gb, 3g.20gb]}\n") as b:
        b.pods = {b.device(4): ["ml/train-0"], b.device(0): ["ml/train-1"]}
        before = b.mig()
        outcome = await b.bring("3g.20gb", "2g.10gb")
        assert outcome.state is MigState.REFUSED
        assert outcome.sentence in (
            words.busy("GPU 0", "3g.20gb at slice 4 is in use by ml/train-0"),
            words.busy("GPU 0", "3g.20gb at slice 0 is in use by ml/train-1"),
        )
        assert len(outcome.pods) == 1
        assert (b.mig(), b.steps, b.journal.read(b.uuid)) == (before, [], None)


async def test_waiting_does_what_fits_beside_and_the_rest_when_the_pod_ends(tmp_path: Path) -> None:
    with bench(tmp_path, more="  mig: {0: [1g.5gb, 2g.10gb]}\n") as b:
        one = next(start for profile, start in b.layout() if profile == "1g.5gb")
        held = b.device(one)
        b.pods = {held: ["ml/train-0"]}
        outcome = await b.bring("3g.20gb", when_busy=WhenBusy.WAIT)
        assert outcome.state is MigState.WAITING
        assert (
            "in use by ml/train-0, and the layout's own instances exist beside it: it is done when they end"
            in outcome.sentence
        )
        assert outcome.going == {held}
        assert sorted(profile for profile, _ in b.layout()) == ["1g.5gb", "3g.20gb"]
        b.pods = {}
        assert (await b.bring("3g.20gb", when_busy=WhenBusy.WAIT)).state is MigState.APPLIED
        assert [profile for profile, _ in b.layout()] == ["3g.20gb"]


async def test_draining_waits_for_those_evicted_and_lets_nobody_else_in(tmp_path: Path) -> None:
    with bench(tmp_path, more="  mig: {0: [1g.5gb, 1g.5gb]}\n") as b:
        (_, one), (_, other) = b.layout()
        b.pods = {b.device(one): ["ml/train-0"]}
        outcome = await b.bring("7g.40gb", when_busy=WhenBusy.DRAIN)
        assert (outcome.state, outcome.pods) == (MigState.WAITING, ("ml/train-0",))
        assert "they are being evicted" in outcome.sentence
        assert outcome.going == {b.device(one), b.device(other)}
        b.pods = {}
        assert (await b.bring("7g.40gb", when_busy=WhenBusy.DRAIN)).state is MigState.APPLIED


async def test_a_pod_that_comes_in_between_is_planned_around(tmp_path: Path) -> None:
    with bench(tmp_path, more="  mig: {0: [2g.10gb, 1g.5gb]}\n") as b:
        (start,) = [start for profile, start in b.layout() if profile == "2g.10gb"]
        held = b.device(start)
        b.on_withhold = lambda: b.pods.update({held: ["ml/late"]})
        outcome = await b.bring("1g.5gb")
        assert (outcome.state, outcome.pods) == (MigState.REFUSED, ("ml/late",))
        assert ("2g.10gb", start) in b.layout()


async def test_a_process_that_no_pod_accounts_for_is_waited_for(tmp_path: Path) -> None:
    with bench(tmp_path, more="  mig: {0: [2g.10gb]}\n") as b:
        (one,) = b.mig().instances
        b.simulation.order(SetLoad(gpu=0, load=Load(gpu=0, pid=41, gi=one.gi_id, ci=0)))
        outcome = await b.bring("7g.40gb")
        assert outcome.state is MigState.WAITING
        assert "in use by process 41" in outcome.sentence
        b.simulation.order(End(gpu=0, pid=41))
        assert (await b.bring("7g.40gb")).state is MigState.APPLIED


async def test_without_the_kubelet_nothing_is_taken_away_but_things_are_made(tmp_path: Path) -> None:
    with bench(tmp_path) as b:
        b.kubelet = False
        assert (await b.bring("1g.5gb")).state is MigState.APPLIED
        outcome = await b.bring("7g.40gb")
        assert (outcome.state, outcome.sentence) == (
            MigState.WAITING,
            "GPU 0: the kubelet does not report who holds its instances",
        )
        assert [profile for profile, _ in b.layout()] == ["1g.5gb"]
        assert len(b.kept) == 1, "nothing is withdrawn from pods for a change that cannot be"


@pytest.mark.parametrize("more", ["", "  mig: {0: [2g.10gb]}\n"])
async def test_nothing_goes_and_no_mode_is_switched_before_the_daemons_there_have_ended(
    tmp_path: Path, more: str
) -> None:
    with bench(tmp_path, more=more) as b:
        before, b.no_daemon = b.mig(), False
        outcome = await b.bring("7g.40gb")
        assert (outcome.state, outcome.sentence) == (MigState.WAITING, words.daemon_not_ended("GPU 0"))
        assert (b.mig(), b.steps, b.journal.read(b.uuid)) == (before, [], None)
        b.no_daemon = True
        assert (await b.bring("7g.40gb")).state is MigState.APPLIED


async def test_what_nvml_shows_afterwards_is_what_counts(tmp_path: Path) -> None:
    with bench(tmp_path) as b:

        def somebody_else(where: str) -> None:
            if where.startswith("after CreateCompute"):
                take(b.handle, DestroyCompute(b.mig().instances[0].start, Part(0, 1)))

        b.at = somebody_else
        outcome = await b.bring("1g.5gb")
        assert outcome.state is MigState.FAILED
        assert outcome.sentence == "GPU 0: NVML shows other instances than were made; the former layout was restored"
        assert b.mig().instances == ()


@pytest.mark.parametrize("when_busy", [WhenBusy.REFUSE, WhenBusy.WAIT])
async def test_a_process_that_starts_during_the_change_undoes_it(tmp_path: Path, when_busy: WhenBusy) -> None:
    with bench(tmp_path, more="  mig: {0: [1g.5gb, 1g.5gb]}\n") as b:
        before = b.layout()
        last = b.mig().instances[-1]

        def start(where: str) -> None:
            if where.startswith("after DestroyInstance"):
                b.at = lambda _: None
                b.simulation.order(SetLoad(gpu=0, load=Load(gpu=0, pid=41, gi=last.gi_id, ci=0)))

        b.at = start
        outcome = await b.bring("7g.40gb", when_busy=when_busy)
        assert outcome.state is (MigState.REFUSED if when_busy is WhenBusy.REFUSE else MigState.WAITING)
        assert outcome.sentence.endswith("the former layout was restored")
        assert b.layout() == before


async def test_what_the_driver_refuses_is_undone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with bench(tmp_path, more="  mig: {0: [2g.10gb]}\n") as b:
        before = b.layout()
        do = b.take

        async def take(step: Step) -> None:
            if isinstance(step, CreateInstance) and step.profile == "7g.40gb":
                raise CallFailed("nvmlDeviceCreateGpuInstanceWithPlacement: Insufficient Resources")
            await do(step)

        monkeypatch.setattr(b, "take", take)
        outcome = await b.bring("7g.40gb")
        assert outcome.state is MigState.FAILED
        assert "Insufficient Resources; the former layout was restored" in outcome.sentence
        assert b.layout() == before
        assert any(isinstance(step, DestroyInstance) for step in b.steps)
        entry = b.journal.read(b.uuid)
        assert entry is not None
        assert entry.done


async def test_instances_that_may_not_be_looked_at_are_not_taken_for_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with bench(tmp_path, more="  mig: {0: [2g.10gb]}\n") as b:

        def refused(*_: object) -> None:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NO_PERMISSION)

        before = b.mig()
        monkeypatch.setattr(pynvml, "nvmlDeviceGetGpuInstances", refused)
        outcome = await b.bring("1g.5gb")
        assert outcome.state is MigState.FAILED
        assert "is the agent root?" in outcome.sentence
        monkeypatch.undo()
        assert b.mig() == before


async def test_what_fits_on_no_such_gpu_is_refused_with_the_profiles_there_are(tmp_path: Path) -> None:
    with bench(tmp_path, A30) as b:
        outcome = await b.bring("3g.20gb")
        assert (outcome.state, b.layout()) == (MigState.REFUSED, [])
        assert outcome.sentence.startswith("GPU 0: 3g.20gb is no profile of this GPU, which has 1g.6gb")


# MIG mode


@pytest.mark.parametrize("product", [A30, H100])
async def test_the_mode_is_switched_on_for_a_layout_and_off_without_one(tmp_path: Path, product: str) -> None:
    name = "1g.6gb" if product == A30 else "1g.10gb"
    with bench(tmp_path, product, more="") as b:
        assert (await b.bring(name, name)).state is MigState.APPLIED
        assert [profile for profile, _ in b.layout()] == [name, name]
        assert frozenset() in b.kept, "the whole GPU is nobody's while its mode changes"
        off = await b.switch_off()
        assert (off.state, off.changed) == (MigState.APPLIED, True)
        assert pynvml.nvmlDeviceGetMigMode(b.handle) == [0, 0]
        assert b.journal.read(b.uuid) is None


async def test_a_gpu_that_a_pod_holds_whole_keeps_its_mode(tmp_path: Path) -> None:
    with bench(tmp_path, H100, more="") as b:
        b.pods = {b.uuid: ["ml/train-0"]}
        refused = await b.bring("1g.10gb")
        assert (refused.state, refused.pods) == (MigState.REFUSED, ("ml/train-0",))
        waiting = await b.bring("1g.10gb", when_busy=WhenBusy.WAIT)
        assert (waiting.state, set(waiting.going)) == (MigState.WAITING, {b.uuid})
        assert pynvml.nvmlDeviceGetMigMode(b.handle) == [0, 0]


async def test_a_mode_that_waits_for_a_reset_says_who_has_the_gpu_open(tmp_path: Path) -> None:
    with bench(tmp_path, A30, more="load:\n- {gpu: 0, pid: 7, type: client}\n") as b:
        outcome = await b.bring("1g.6gb")
        said = words.reset_needed("GPU 0", "on", "dcgm (7)")
        assert (outcome.state, outcome.sentence, b.told) == (MigState.WAITING, said, [said])
        b.simulation.order(End(gpu=0, pid=7))
        assert (await b.bring("1g.6gb")).state is MigState.APPLIED


async def test_a_layout_that_is_wished_no_more_before_its_reset_leaves_no_mode_pending(tmp_path: Path) -> None:
    with bench(tmp_path, A30, more="load:\n- {gpu: 0, pid: 7, type: client}\n") as b:
        await b.bring("1g.6gb")
        assert pynvml.nvmlDeviceGetMigMode(b.handle) == [0, 1]
        assert (await b.change().undo()).state is MigState.APPLIED
        assert pynvml.nvmlDeviceGetMigMode(b.handle) == [0, 0]


# Reboots


@pytest.mark.parametrize("product", [A30, H100])
async def test_after_a_reboot_the_same_instances_stand_at_the_same_places(tmp_path: Path, product: str) -> None:
    one, two = ("1g.6gb", "2g.12gb") if product == A30 else ("1g.10gb", "2g.20gb")
    with bench(tmp_path, product, more="") as b:
        await b.bring(two, one)
        # Cut by hand, elsewhere than the planner would: it is taken as it is, and comes back as it was.
        await b.bring(one)
        before = b.mig()
        b.simulation.order(Reboot())
        assert b.layout() == []
        b.boot_id, b.kubelet = b.simulation.boot_id, False
        assert (await b.bring(one)).state is MigState.APPLIED
        assert (b.mig().uuids, b.layout()) == (before.uuids, [(one, before.instances[0].start)])


async def test_another_layout_after_the_reboot_is_planned_anew(tmp_path: Path) -> None:
    with bench(tmp_path) as b:
        await b.bring("1g.5gb")
        b.simulation.order(Reboot())
        b.boot_id = b.simulation.boot_id
        assert (await b.bring("7g.40gb")).state is MigState.APPLIED
        assert b.layout() == [("7g.40gb", 0)]


def test_a_wish_reads_well() -> None:
    assert [str(Wish(None)), str(Wish(())), str(Wish(("1g.5gb", "2g.10gb")))] == [
        "MIG off",
        "MIG on, no instance",
        "1g.5gb, 2g.10gb",
    ]
