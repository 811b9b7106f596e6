"""JobKinds for tests: the Sweep of the pages, random ones, and objects of the kinds that they declare."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from hypothesis import strategies as st

from controller.jobs.framework.raw import Json
from controller.jobs.kinds.declared.kind import DeclaredKind
from controller.jobs.kinds.declared.spec import read
from kube.testing.store import copied
from tests.support.controller.declaredjobs import Pod, pods_of, templates, typed

SWEEP: Json = {
    "apiVersion": "tessera.dev/v1alpha1",
    "kind": "JobKind",
    "metadata": {"name": "sweeps.lab.example"},
    "spec": {
        "group": "lab.example",
        "version": "v1",
        "kind": "Sweep",
        "plural": "sweeps",
        "suspend": ".spec.paused",
        "podSets": [
            {"name": "search", "template": ".spec.search.template"},
            {
                "name": "trials",
                "template": ".spec.trials.template",
                "count": ".spec.trials.parallel",
                "indexLabel": "lab.example/trial",
                "reclaimable": ".status.spare",
            },
        ],
        "succeeded": {"field": ".status.phase", "values": ["Succeeded"]},
        "failed": {"field": ".status.phase", "values": ["Failed"]},
        "message": ".status.message",
        "ready": {"count": ".status.readyPods", "allPods": True},
        "active": {"count": ".status.pods"},
        "suspended": {"field": ".status.phase", "values": ["", "Paused"]},
        "priorityClass": ".spec.priorityClass",
    },
}


def job_kind(**spec: Any) -> Json:
    """The Sweep's JobKind with these fields of its spec; None takes one away."""
    made = copied(SWEEP)
    made["spec"] = {key: value for key, value in {**made["spec"], **spec}.items() if value is not None}
    return made


def kind_of(given: Json) -> DeclaredKind:
    return DeclaredKind(read(given).spec)


@dataclass(frozen=True)
class Declared:
    """A JobKind, a suspended object of its kind, and what the kind's controller does with one that runs."""

    given: Json
    job: Json
    pods: Callable[[Json], list[Pod]]

    @cached_property
    def kind(self) -> DeclaredKind:
        return kind_of(self.given)

    def run(self, job: Json, on: bool) -> None:
        count = len(self.pods(job)) if on else 0
        job["status"] |= {"phase": "Running" if on else "Paused", "pods": count, "readyPods": count}


_COUNTS = st.integers(0, 4)
_MAYBE = st.none() | _COUNTS
_TEMPLATES = templates()
_BOOLEANS = st.booleans()


def _suspended_by(path: list[str], body: Json) -> Json:
    at = body
    for key in path[:-1]:
        at = at.setdefault(key, {})
    at[path[-1]] = True
    return body


def _is_held(path: list[str], job: Json) -> bool:
    at: Any = job["spec"]
    for key in path:
        at = at[key]
    return bool(at)


_SUSPEND = st.sampled_from([["suspend"], ["paused"], ["run", "policy", "suspend"]])


_FIXED_NAMES = st.lists(st.sampled_from(["a", "b", "c-d"]), min_size=1, max_size=3, unique=True)
_LISTED_NAMES = st.lists(st.sampled_from(["A", "b", "c1"]), min_size=1, max_size=3, unique=True)
_NAMING = st.sampled_from([{"nameFrom": ".spec.some.groups[*].called"}, {"name": "set"}, {}])


@st.composite
def fixed(draw: st.DrawFn) -> Declared:
    """Templates at fixed paths, some of them optional and absent, some with groups and completions."""
    suspend = draw(_SUSPEND)
    body: Json = _suspended_by(suspend, {})
    pod_sets: list[Json] = []
    shapes: list[tuple[str, int, bool]] = []
    for name in draw(_FIXED_NAMES):
        key = name.replace("-", "_")
        there = not pod_sets or draw(_BOOLEANS)
        count, most, replicas = (draw(_MAYBE) for _ in range(3))
        part = {"size": count, "completions": most, "groups": replicas}
        if there:
            body[key] = {name: value for name, value in part.items() if value is not None}
            body[key]["pod"] = draw(_TEMPLATES)
        pod_sets.append(
            {
                "name": name,
                "template": f".spec.{key}.pod",
                "count": f".spec['{key}'].size",
                "atMost": f".spec.{key}.completions",
                "replicas": f".spec.{key}.groups",
                "optional": True,
            }
        )
        each = 1 if count is None else count
        total = (1 if replicas is None else replicas) * (each if most is None else min(each, most))
        shapes.append((key, total, there))

    def pods(job: Json) -> list[Pod]:
        if _is_held(suspend, job):
            return []
        return [pod for key, count, there in shapes if there for pod in pods_of(job["spec"][key]["pod"], count)]

    given = job_kind(podSets=pod_sets, suspend=".spec." + ".".join(suspend))
    return Declared(given, typed("lab.example/v1", "Sweep", body), pods)


@st.composite
def listed(draw: st.DrawFn) -> Declared:
    """A pod set for each item of a list or map: named by a field, by the key, or by the number."""
    suspend = draw(_SUSPEND)
    names = draw(_LISTED_NAMES)
    groups = [{"called": name, "size": draw(_COUNTS), "inner": {"template": draw(_TEMPLATES)}} for name in names]
    as_map = draw(_BOOLEANS)
    held: Any = {group["called"]: group for group in groups} if as_map else groups
    body = _suspended_by(suspend, {"some": {"groups": held}})
    naming: Json = draw(_NAMING)
    pod_set = {"template": ".spec.some.groups[*].inner.template", "count": ".spec.some.groups[*].size", **naming}

    def pods(job: Json) -> list[Pod]:
        if _is_held(suspend, job):
            return []
        found = job["spec"]["some"]["groups"]
        each = found.values() if isinstance(found, dict) else found
        return [pod for group in each for pod in pods_of(group["inner"]["template"], group["size"])]

    given = job_kind(podSets=[pod_set], suspend=".spec." + ".".join(suspend))
    return Declared(given, typed("lab.example/v1", "Sweep", body), pods)


DECLARED = st.one_of(fixed(), listed())
