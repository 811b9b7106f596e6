"""JobKinds are read as a whole or refused in one sentence; of several for one kind the older counts."""

import copy
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.jobs.framework.raw import Json
from controller.jobs.kinds.declared import rules
from controller.jobs.kinds.declared.accepting import ACCEPTED, EXTERNAL, INVALID, KNOWN, TWICE, verdicts
from controller.jobs.kinds.declared.spec import JobKindError, read
from controller.reconcile.jobshell.watched import KNOWN_KINDS
from tests.support.controller.declarations import SWEEP, job_kind

SETS: list[Json] = SWEEP["spec"]["podSets"]
COUNT: Json = {"count": ".status.pods"}
BROKEN: list[tuple[str, Json, str]] = [
    ("group", {"group": "tessera.dev"}, "spec.group: expected the group of a kind of jobs"),
    (
        "apart",
        {"podSets": [*SETS, {"name": "x", "template": ".spec.trials.template.y"}]},
        "spec.podSets: expected templ",
    ),
    (
        "twice",
        {"podSets": [SETS[0], {"name": "x", "template": SETS[0]["template"]}]},
        "spec.podSets: expected templates",
    ),
    (
        "within",
        {"suspend": ".spec.search.template.spec.x"},
        "spec.suspend: expected a field outside of the pod templates",
    ),
    ("suspended", {"suspended": None}, "spec.suspended: expected suspended or observedGeneration, found neither"),
    *(
        (f"star of {key}", {"podSets": [{**SETS[0], key: ".spec.a[*].b"}]}, f"spec.podSets[0].{key}: expected no [*]")
        for key in ("count", "atMost", "replicas", "reclaimable")
    ),
    (
        "star of nameFrom",
        {"podSets": [{"template": ".spec.a", "nameFrom": ".spec.a[*].b"}]},
        "spec.podSets[0].nameFrom: expected no [*]",
    ),
    ("no name", {"podSets": [{"template": ".spec.a"}]}, "spec.podSets[0].name: expected the pod set's name"),
    (
        "two names",
        {"podSets": [{"template": ".spec.a[*].b", "name": "x", "nameFrom": ".spec.a[*].c"}]},
        "spec.podSets[0].nameFrom: expected either name or nameFrom, found both",
    ),
    (
        "no pods",
        {"podSets": [{"template": ".spec.a", "name": "a", "defaultCount": 0}]},
        "spec.podSets[0].defaultCount: expected 1 or more",
    ),
    ("label", {"podSets": [{**SETS[0], "replicaLabel": "x"}]}, "spec.podSets[0].replicaLabel: expected replicas and"),
    ("no question", {"ready": {}}, "spec.ready: expected one of condition, field and count, found none or several"),
    (
        "two questions",
        {"failed": {**COUNT, "condition": "A"}},
        "spec.failed: expected one of condition, field and count",
    ),
    (
        "status",
        {"active": {**COUNT, "status": "True"}},
        "spec.active.status: expected a condition beside it, found none",
    ),
    ("values", {"active": {"field": ".status.x"}}, "spec.active.values: expected values beside a field"),
    ("at least", {"succeeded": {"condition": "A", "atLeast": 2}}, "spec.succeeded.atLeast: expected a count beside it"),
    ("all pods", {"succeeded": {"condition": "A", "allPods": True}}, "spec.succeeded.allPods: expected a count beside"),
]
"""Specifications that break one rule of the table each; the API server is asked about them too."""


def sentence(given: Json) -> str:
    """Why it is refused; empty where it is read."""
    try:
        read(given)
    except JobKindError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(("spec", "said"), [each[1:] for each in BROKEN], ids=[each[0] for each in BROKEN])
def test_a_broken_rule_is_told_with_its_field(spec: Json, said: str) -> None:
    with pytest.raises(JobKindError, match=f"^{re.escape(said)}"):
        read(job_kind(**spec))


def test_every_rule_of_the_table_is_broken_by_an_example_here() -> None:
    every: list[rules.Rule[Any]] = [*rules.SPEC_RULES, *rules.POD_SET_RULES, *rules.STATUS_RULES]
    said = [sentence(job_kind(**spec)) for _, spec, _ in BROKEN]
    assert not [rule for rule in every if not any(f"{rule.field}: {rule.sentence}" in each for each in said)]


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"group": 3}, "spec.group: expected str, found int"),
        ({"group": "apps"}, "spec.group: expected an API group with a dot, found 'apps'"),
        ({"colour": "red"}, "spec.colour: expected no such field, found one"),
        ({"kind": None}, "spec.kind: expected a value, found none"),
        ({"suspend": ".metadata.x"}, "spec.suspend: expected a JSON path of keys below .spec"),
        ({"message": ".status.x[*]"}, "spec.message: expected a JSON path of one field"),
        ({"podSets": []}, "spec.podSets: expected array of length >= 1, found []"),
        ({"podSets": [{"name": "a"}]}, "spec.podSets[0].template: expected a value, found none"),
        (
            {"podSets": [{"name": "a", "template": ".spec.a[*].b[*].c"}]},
            "spec.podSets[0].template: expected a JSON path below .spec with at most one [*], as .spec.groups[*].templ",
        ),
        ({"plural": "sweep"}, "metadata.name: expected sweep.lab.example, found 'sweeps.lab.example'"),
    ],
)
def test_a_wrong_field_is_told_with_what_was_found_and_expected(spec: Json, said: str) -> None:
    with pytest.raises(JobKindError) as caught:
        read(job_kind(**spec))
    assert str(caught.value).startswith(said)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@given(st.sampled_from(sorted(SWEEP["spec"])), JSON)
def test_any_value_of_any_field_is_read_or_refused(field: str, value: Any) -> None:
    made = copy.deepcopy(SWEEP)
    made["spec"][field] = value
    assert "\n" not in sentence(made)


@given(JSON)
def test_anything_is_a_job_kind_or_refused(value: Any) -> None:
    for made in ({"metadata": value}, {"metadata": {"name": "x"}, "spec": value}):
        with pytest.raises(JobKindError):
            read(made)


def verdict(*given: Json, externals: tuple[str, ...] = ()) -> list[tuple[str, str]]:
    return [(name, each.reason) for name, each in verdicts(given, KNOWN_KINDS, externals).items()]


def named(name: str, created: str, **spec: Any) -> Json:
    return {**job_kind(**spec), "metadata": {"name": name, "creationTimestamp": created}}


def test_a_kind_that_is_known_declared_twice_or_left_to_others_makes_none() -> None:
    assert verdict(SWEEP) == [("sweeps.lab.example", ACCEPTED)]
    assert verdict(SWEEP, externals=("Sweep.v1.lab.example",)) == [("sweeps.lab.example", EXTERNAL)]
    known = named("jobsets.jobset.x-k8s.io", "2026", group="jobset.x-k8s.io", kind="JobSet", plural="jobsets")
    assert verdict(known) == [("jobsets.jobset.x-k8s.io", KNOWN)]
    old, new = named("sweeps.lab.example", "2025"), named("sweepz.lab.example", "2026", plural="sweepz")
    for order in ((old, new), (new, old)):
        assert dict(verdict(*order)) == {"sweeps.lab.example": ACCEPTED, "sweepz.lab.example": TWICE}
    assert verdict({"metadata": {"name": "x"}}) == [("x", INVALID)]


def test_a_job_kind_that_is_being_deleted_makes_a_kind_that_starts_nothing() -> None:
    going = {**SWEEP, "metadata": {**SWEEP["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}}
    (found,) = verdicts([going], KNOWN_KINDS, ()).values()
    assert found.kind is not None
    assert found.kind.leaving
    assert found.kind.is_on_hold({"spec": {"paused": True}})
    assert not found.kind.is_on_hold({"spec": {"paused": False}})
