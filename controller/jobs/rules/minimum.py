"""The minimum of replicas of a serving object: a number if its kind can have one, none if it starts as a whole."""

from collections.abc import Iterator
from typing import Final

from controller.jobs.framework.kind import Refusal, Review, Rule
from controller.jobs.framework.marks import MAX_DIGITS, min_replicas
from controller.jobs.framework.raw import JobError, annotations, shown
from controller.jobs.rules import cel
from controller.jobs.rules.fields import annotation_path, forbidden, invalid
from inventory.api.names import MIN_REPLICAS

_PATH: Final = annotation_path(MIN_REPLICAS)
_FOUND: Final = cel.key("variables.annotations", MIN_REPLICAS)
_GIVEN: Final = cel.has_key("variables.annotations", MIN_REPLICAS)
_NUMBER: Final = f"{_FOUND}.matches('^[0-9]{{1,{MAX_DIGITS}}}$')"


def _minimum(review: Review) -> Iterator[Refusal]:
    try:
        min_replicas(review.new)
    except JobError as error:
        yield invalid(_PATH, str(error).partition(": ")[2])


def _none(review: Review) -> Iterator[Refusal]:
    found = annotations(review.new).get(MIN_REPLICAS)
    if found is not None:
        sentence = f"a StatefulSet has all of its replicas or none; found {shown(found)}, expected no minimum"
        yield forbidden(_PATH, sentence)


MINIMUM: Final = Rule(
    refused=_minimum,
    says={
        "minimum": cel.when(
            f"{_GIVEN} && !{_NUMBER}",
            cel.text(cel.quoted(f"{_PATH}: expected a number of replicas of at least 0, found "), cel.shown(_FOUND)),
        )
    },
)
NO_MINIMUM: Final = Rule(
    refused=_none,
    says={
        "minimum": cel.when(
            _GIVEN,
            cel.text(
                cel.quoted(f"{_PATH}: a StatefulSet has all of its replicas or none; found "),
                cel.shown(_FOUND),
                cel.quoted(", expected no minimum"),
            ),
        )
    },
)
