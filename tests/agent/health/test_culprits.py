"""The culprits behind applications' XIDs."""

from hypothesis import given
from hypothesis import strategies as st

from agent.health.culprits import FORGOTTEN_S, MOST_COUNTS, MOST_PROGRAMS, Culprit, CulpritCore
from inventory.devices import GpuUuid

ONE, OTHER = GpuUuid("GPU-1"), GpuUuid("GPU-2")


def told(*faults: tuple[GpuUuid, int, str]) -> CulpritCore:
    core = CulpritCore()
    for at_s, (gpu, xid, program) in enumerate(faults):
        core.seen(gpu, "", xid, program, float(at_s))
        core.validate()
    return core


def culprits(core: CulpritCore) -> dict[tuple[GpuUuid, int], Culprit]:
    return {(each.gpu, each.xid): each.culprit for each in core.counts()}


def test_of_one_program_on_one_gpu_nothing_is_said_however_often() -> None:
    assert culprits(told(*[(ONE, 31, "team/a")] * 20)) == {(ONE, 31): Culprit.UNKNOWN}


def test_the_same_xid_of_one_program_on_several_gpus_is_the_programs() -> None:
    core = told((ONE, 31, "team/a"), (OTHER, 31, "team/a"))
    assert culprits(core) == {(ONE, 31): Culprit.PROGRAM, (OTHER, 31): Culprit.PROGRAM}


def test_several_programs_that_have_it_on_one_gpu_alone_point_at_the_gpu() -> None:
    assert culprits(told((ONE, 31, "team/a"), (ONE, 31, "team/b"))) == {(ONE, 31): Culprit.GPU}


def test_a_gpu_is_cleared_when_one_of_its_programs_has_it_elsewhere_too() -> None:
    core = told((ONE, 31, "team/a"), (ONE, 31, "team/b"), (OTHER, 31, "team/b"))
    assert culprits(core) == {(ONE, 31): Culprit.PROGRAM, (OTHER, 31): Culprit.PROGRAM}


def test_a_culprit_is_news_once_and_again_when_it_is_another() -> None:
    core = CulpritCore()
    news = [
        core.seen(gpu, "", 31, program, float(at_s))
        for at_s, (gpu, program) in enumerate(
            [(ONE, "team/a"), (ONE, "team/b"), (ONE, "team/b"), (OTHER, "team/b"), (ONE, "team/b")]
        )
    ]
    assert [each and (each.gpu, each.culprit) for each in news] == [
        None,
        (ONE, Culprit.GPU),
        None,
        (OTHER, Culprit.PROGRAM),
        None,
    ]
    assert core.elsewhere(core.counts()[-1]) == 2


def test_different_xids_are_different_faults() -> None:
    core = told((ONE, 31, "team/a"), (OTHER, 13, "team/a"))
    assert set(culprits(core).values()) == {Culprit.UNKNOWN}


def test_faults_of_nobody_are_counted_and_accuse_nobody() -> None:
    core = told((ONE, 43, ""), (ONE, 43, ""), (OTHER, 43, ""))
    assert [(each.gpu, each.count, each.programs) for each in core.counts()] == [(ONE, 2, {}), (OTHER, 1, {})]
    assert set(culprits(core).values()) == {Culprit.UNKNOWN}


def test_what_a_program_did_a_week_ago_accuses_no_gpu() -> None:
    core = CulpritCore()
    core.seen(ONE, "", 31, "team/a", 0.0)
    assert core.seen(ONE, "", 31, "team/b", FORGOTTEN_S) is None
    (found,) = core.counts()
    assert (found.culprit, found.count, found.first_s) == (Culprit.UNKNOWN, 2, 0.0)
    core.validate()


def test_a_board_keeps_its_serial_and_its_counts_over_a_restart() -> None:
    core = CulpritCore()
    core.seen(ONE, "0324", 31, "team/a", 1.0)
    core.seen(ONE, "", 31, "team/b", 2.0)
    again = CulpritCore()
    again.restore(core.counts())
    again.validate()
    assert again.counts() == core.counts()
    assert again.counts()[0].serial == "0324"


def test_the_count_that_is_longest_ago_goes_first() -> None:
    core = CulpritCore()
    for number in range(MOST_COUNTS + 1):
        core.seen(ONE, "", number, "", float(number))
    core.seen(ONE, "", 1, "", 1000.0)
    assert len(core.counts()) == MOST_COUNTS
    assert [core.counts()[0].xid, core.counts()[-1].xid] == [2, 1]


@given(
    st.lists(
        st.tuples(
            st.sampled_from([ONE, OTHER, GpuUuid("GPU-3")]),
            st.sampled_from([13, 31]),
            st.sampled_from(["", *(f"team/{number}" for number in range(MOST_PROGRAMS + 2))]),
            st.floats(0, FORGOTTEN_S),
        ),
        max_size=40,
    )
)
def test_after_any_faults_the_counts_add_up_and_every_culprit_follows_from_them(
    faults: list[tuple[GpuUuid, int, str, float]],
) -> None:
    core, now_s = CulpritCore(), 0.0
    for gpu, xid, program, passed_s in faults:
        now_s += passed_s
        core.seen(gpu, "", xid, program, now_s)
        core.validate()
    assert sum(each.count for each in core.counts()) == len(faults)
    again = CulpritCore()
    again.restore(core.counts())
    again.validate()
