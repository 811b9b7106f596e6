"""Which mutants are drawn, and which tests look for them first."""

from pathlib import Path

import pytest

from hack.mutants import choosing
from hack.mutants.choosing import ROOMS, Mirror, drawn, mirror
from hack.mutants.planting import Mutant, mutants_of

ROOT = Path(__file__).parents[3]


def room(name: str, functions: int) -> list[Mutant]:
    source = "".join(f"def f{number}(a):\n    return a < {number} and a > 1\n" for number in range(functions))
    return mutants_of(f"{name}/a.py", source.encode())


def test_fewer_are_some_of_more_and_each_room_has_its_share() -> None:
    rooms = {"big": room("big", 60), "small": room("small", 20), "tiny": room("tiny", 1)}
    hundred, ten = drawn(rooms, 40, 1), drawn(rooms, 10, 1)
    assert set(ten) < set(hundred)
    assert [sum(name == which for name, _ in hundred) for which in rooms] == [29, 10, 1]
    assert {name for name, _ in drawn(rooms, 3, 1)} == set(rooms)


def test_no_two_are_of_one_line_so_all_may_be_fewer_than_wanted() -> None:
    assert len(drawn({"a": room("a", 5)}, 100, 1)) == 5


def test_another_seed_draws_others_and_the_same_seed_the_same() -> None:
    rooms = {"a": room("a", 60)}
    assert drawn(rooms, 10, 1) == drawn(rooms, 10, 1)
    assert set(drawn(rooms, 10, 1)) != set(drawn(rooms, 10, 2))


def test_a_change_elsewhere_draws_no_other() -> None:
    before = room("a", 60)
    after = [mutant for mutant in before if mutant.function != "f7"]
    names = [one.name for _, one in drawn({"a": before}, 20, 1) if one.function != "f7"]
    assert [one.name for _, one in drawn({"a": after}, 20, 1)][: len(names)] == names


def test_the_tests_of_a_module_s_name_come_first_then_those_that_import_it_then_its_folder() -> None:
    tests = {
        "tests/controller/scheduler/test_engine.py": "from controller.scheduler.engine import Engine\n",
        "tests/controller/scheduler/topology/test_finder.py": "",
        "tests/controller/scheduler/flavors/test_plan.py": "from controller.scheduler.flavors import scan, plan\n",
        "tests/controller/scheduler/flavors/test_step.py": "# from controller.scheduler.flavors.scan\nimport scanner\n",
        "tests/controller/scheduler/test_histories.py": "    from controller.scheduler.flavors.scan import Scan\n",
        "tests/controller/scheduler/flavors/test_scan_properties.py": "",
        "tests/controller/scheduler/flavors/test_scanner.py": "",
    }
    assert mirror("controller/scheduler/flavors/scan.py", tests) == Mirror(
        near=[
            "tests/controller/scheduler/flavors/test_scan_properties.py",
            "tests/controller/scheduler/flavors/test_plan.py",
            "tests/controller/scheduler/test_histories.py",
            "tests/controller/scheduler/flavors/test_scanner.py",
            "tests/controller/scheduler/flavors/test_step.py",
        ],
        far=["tests/controller/scheduler/test_engine.py", "tests/controller/scheduler/topology/test_finder.py"],
    )


@pytest.mark.parametrize("name", ROOMS)
def test_each_folder_of_a_room_is_there_and_tests_mirror_the_room(name: str) -> None:
    tests = 0
    for folder in ROOMS[name]:
        modules = [str(path.relative_to(ROOT)) for path in (ROOT / folder).rglob("*.py")]
        assert any(choosing.is_mutated(module, ROOMS[name]) for module in modules), folder
        mirroring = (str(path.relative_to(ROOT)) for path in (ROOT / "tests" / folder).rglob("*.py"))
        tests += sum(choosing.is_test(path, ROOMS[name]) for path in mirroring)
    assert tests


def test_stand_ins_for_tests_are_not_mutated() -> None:
    assert not choosing.is_mutated("deviceplugin/testing.py", ["deviceplugin"])
    assert not choosing.is_mutated("deviceplugins/a.py", ["deviceplugin"])
    assert not choosing.is_test("tests/support/deviceplugin/fakes.py", ["deviceplugin"])
