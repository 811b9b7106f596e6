"""Configurations made from the hardware, for the label nvidia.com/mig.config of a node without mig-parted's file."""

from msgspec.structs import replace

from agent.config.settings import MigManager, MigSettings
from agent.mig.choice import PartedChoice
from agent.mig.generated import configurations
from agent.mig.outcomes import MigState, MigStatus
from inventory.devices import Gpu, MigProfile
from tests.support.inventory.builders import gpu, uuid


def profile(name: str, slices: int, most: int) -> MigProfile:
    return MigProfile(
        profile_id=0,
        name=name,
        slices=slices,
        size=slices,
        max_count=most,
        starts=(),
        memory_mib=1024,
        multiprocessors=14,
    )


A100 = (
    profile("1g.10gb", 1, 7),
    profile("1g.10gb+me", 1, 1),
    profile("1g.20gb", 1, 4),
    profile("2g.20gb", 2, 3),
    profile("3g.40gb", 3, 2),
    profile("4g.40gb", 4, 1),
    profile("7g.80gb", 7, 1),
)
A30 = (profile("1g.6gb", 1, 4), profile("2g.12gb", 2, 2), profile("4g.24gb", 4, 1))


def board(index: int, device: int, profiles: tuple[MigProfile, ...]) -> Gpu:
    return replace(gpu(index), pci_device_id=device, mig_capable=bool(profiles), mig_profiles=profiles)


def chosen(label: str, *gpus: Gpu) -> tuple[dict[str, tuple[str, ...] | None], PartedChoice]:
    choice = PartedChoice(MigSettings())
    choice.label = label
    choice.reread()
    return {each: wish.profiles for each, wish in choice.wishes(gpus, {}).items()}, choice


def test_the_names_are_those_of_nvidias_manager() -> None:
    assert sorted(configurations([board(0, 1, A100)])) == [
        "all-1g.10gb",
        "all-1g.10gb.me",
        "all-1g.20gb",
        "all-2g.20gb",
        "all-3g.40gb",
        "all-4g.40gb",
        "all-7g.80gb",
        "all-balanced",
        "all-disabled",
        "all-enabled",
    ]
    assert "all-balanced" not in configurations([board(0, 1, A100[-1:])]), "a size is missing"


def test_a_profile_is_made_as_often_as_each_gpu_takes_it_and_others_are_left_alone() -> None:
    gpus = (board(0, 1, A100), board(1, 2, A30), board(2, 3, ()))
    assert chosen("all-1g.10gb", *gpus)[0] == {uuid(0): ("1g.10gb",) * 7}
    assert chosen("all-1g.10gb.me", *gpus)[0] == {uuid(0): ("1g.10gb+me",)}
    assert chosen("all-disabled", *gpus)[0] == {uuid(0): None, uuid(1): None}
    assert chosen("all-enabled", *gpus)[0] == {uuid(0): (), uuid(1): ()}


def test_balanced_is_two_small_ones_a_larger_and_where_it_fits_a_largest() -> None:
    assert chosen("all-balanced", board(0, 1, A100), board(1, 2, A30))[0] == {
        uuid(0): ("1g.10gb", "1g.10gb", "2g.20gb", "3g.40gb"),
        uuid(1): ("1g.6gb", "1g.6gb", "2g.12gb"),
    }


def test_the_label_is_answered_and_a_name_that_is_not_there_is_said() -> None:
    _, choice = chosen("all-2g.20gb", board(0, 1, A100))
    assert choice.answer({}) == "pending"
    assert choice.answer({uuid(0): MigStatus(uuid(0), 0, "", MigState.APPLIED, "", 0.0)}) == "success"
    _, unknown = chosen("all-5g", board(0, 1, A100))
    assert unknown.answer({}) == "failed"
    assert "found all-5g, expected one of all-1g.10gb" in unknown.problems[0]


def test_where_the_agent_is_the_manager_a_mark_for_nvidias_keeps_it_from_nothing() -> None:
    _, choice = chosen("all-disabled")
    choice.settings, choice.other_manager = MigSettings(manager=MigManager.AGENT), True
    assert set(choice.wishes((board(0, 1, A100),), {})) == {uuid(0)}
    assert not choice.is_left


def test_a_node_without_mig_and_one_with_nvidias_own_manager_leave_the_label_alone() -> None:
    for capable, other in ((False, False), (True, True)):
        _, choice = chosen("all-disabled")
        choice.other_manager = other
        assert choice.wishes((board(0, 1, A100 if capable else ()),), {}) == {}
        assert (choice.answer({}), choice.problems) == (None, ())
