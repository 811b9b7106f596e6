"""Kueue's cases about what may be created and changed, by the CEL of the policies beside the rules in Python."""

import os
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import pytest

from controller.jobs.framework.kind import refused
from controller.jobs.kinds.policies import RULED, review
from tests.conformance import replay
from tests.conformance.replay import Case
from tests.support.controller.celpolicies import said

pytestmark = pytest.mark.conformance

KINDS = {ruled.kind: ruled for ruled in RULED}


def without_nulls(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    return [without_nulls(item) for item in value] if isinstance(value, list) else value


def objects(case: Case) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    """Before and after: those of the case's inputs that are of a kind with rules."""
    given = {**case.input, **(case.input.get("args") or {})}
    known = {name: one for name, one in given.items() if isinstance(one, dict) and one.get("kind") in KINDS}
    old = next((one for name, one in known.items() if name.startswith("old")), None)
    return without_nulls(old), without_nulls(
        next((one for name, one in known.items() if not name.startswith("old")), None)
    )


def judged() -> Iterator[Case]:
    for case in replay.cases_that(lambda case: case.corpus == replay.JOBS and "Validate" in case.suite):
        if objects(case)[1] is not None:
            yield case


def test_cel_and_python_say_the_same_of_every_case() -> None:
    """Also of the cases whose outcome hangs on other objects: neither half looks at them.

    A folder that is given by itself may hold none.
    """
    seen = 0
    for case in judged():
        old, new = objects(case)
        assert new is not None
        ruled = KINDS[new["kind"]]
        asked = msgspec.structs.replace(review(ruled, new, old), gates=case.gates)
        found = [f"{one.field}: {one.sentence}" for one in refused([r for r in ruled.rules if r.says], asked)]
        sentence = said(ruled, new, old, case.gates)
        assert sentence in found if found else sentence == "", str(case)
        seen += 1
    assert seen or os.environ.get("TESSERA_CORPUS")
