"""Tests of an object's status, as a JobKind specifies them."""

from typing import Final

from controller.jobs.framework.raw import JobError, Json
from controller.jobs.framework.templated import Path, dotted, located
from controller.jobs.kinds.declared.paths import items, number, parsed, words
from inventory.api.jobkind import StatusTest

CONDITIONS: Final[Path] = ("status", "conditions")


class StatusReader:
    """Applies tests. ``conditions``: the path of an object's conditions. All methods raise JobError for a field of
    another type.
    """

    def __init__(self, conditions: Path = CONDITIONS) -> None:
        self._conditions = conditions

    def holds(self, test: StatusTest, job: Json, pods: int) -> bool:
        """Whether the test holds; ``pods``: the number of all pod sets together."""
        if test.condition is not None:
            return bool(self._condition(job, test.condition).get("status") == (test.status or "True"))
        if test.field is not None:
            return words(job, parsed(test.field).bound(None)) in test.values
        assert test.count is not None
        least = pods if test.all_pods else test.at_least or 1
        return total(test.count, job) >= least

    def said(self, test: StatusTest, job: Json) -> str:
        """The message of the condition that the test names; empty for other tests."""
        message = self._condition(job, test.condition).get("message") if test.condition is not None else None
        return message if isinstance(message, str) else ""

    def _condition(self, job: Json, type_: str) -> Json:
        """The condition of that type; empty if there is none."""
        listed = located(job, self._conditions)
        if listed is None:
            return {}
        if not isinstance(listed, list):
            raise JobError(f"{dotted(self._conditions)}: expected a list, found {type(listed).__name__}")
        return next((each for each in listed if isinstance(each, dict) and each.get("type") == type_), {})


def total(path: str, job: Json) -> int:
    """The number at the path, or the sum of the numbers under ``[*]``; an absent number counts as 0. Raises
    JobError.
    """
    found = parsed(path)
    if not found.has_all:
        return number(job, found.bound(None)) or 0
    return sum(number(job, each) or 0 for _, each in items(job, found))
