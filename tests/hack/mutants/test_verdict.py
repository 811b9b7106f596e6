"""When the tests are good enough, and what is said of mutants that survive."""

import msgspec
import pytest

from hack.mutants import verdict
from hack.mutants.planting import Mutant, mutants_of
from hack.mutants.survivors import listed
from hack.mutants.verdict import Outcome, Result

MUTANT = mutants_of("a/b.py", b'def f(a):\n    a["x\\t"].b()\n    a["x\\t"].b()\n')[1]


def result(outcome: Outcome, mutant: Mutant = MUTANT) -> Result:
    return Result("a", mutant, outcome, "because", 1.0)


@pytest.mark.parametrize(
    ("killed", "hung", "listed_", "survived", "code"),
    [
        (100, 0, 0, 0, verdict.PASSED),
        (84, 1, 15, 0, verdict.PASSED),
        (84, 0, 16, 0, verdict.SHORT),
        (99, 0, 0, 1, verdict.SHORT),
        (9, 0, 0, 1, verdict.SHORT),
        (8, 0, 2, 0, verdict.PASSED),
    ],
)
def test_enough_died_and_the_rest_is_listed(killed: int, hung: int, listed_: int, survived: int, code: int) -> None:
    counts = {Outcome.KILLED: killed, Outcome.TIMED_OUT: hung, Outcome.LISTED: listed_, Outcome.SURVIVED: survived}
    assert verdict.exit_code([result(outcome) for outcome, number in counts.items() for _ in range(number)]) == code


def test_what_is_printed_of_a_survivor_is_its_entry_in_the_list() -> None:
    told = verdict.summary([result(Outcome.SURVIVED)], {})
    entry = [line for line in told if line.startswith("  ")]
    assert [one.name for one in listed("\n".join(entry).encode())] == [MUTANT.name]


def test_an_entry_whose_mutant_died_is_told_to_go() -> None:
    assert "delete its entry in survivors.toml" in verdict.summary([result(Outcome.KILLED)], {MUTANT.name: "why"})[-1]
    assert "survivors.toml" not in "".join(verdict.summary([result(Outcome.KILLED)], {}))


def test_rooms_and_the_total_are_counted() -> None:
    told = verdict.summary([result(Outcome.KILLED), result(Outcome.TIMED_OUT), result(Outcome.LISTED)], {})
    assert told[-1].split() == ["all", "3", "mutants,", "67%", "died:", "1", "killed,", "1", "timeout,", "1", "listed"]


def test_json_has_each_mutant_with_its_outcome() -> None:
    read = msgspec.json.decode(verdict.as_json([result(Outcome.KILLED), result(Outcome.SURVIVED)]))
    assert (read["share"], read["exitCode"]) == (0.5, 1)
    assert [one["outcome"] for one in read["results"]] == ["killed", "survived"]
    assert read["results"][0]["mutant"]["module"] == "a/b.py"
