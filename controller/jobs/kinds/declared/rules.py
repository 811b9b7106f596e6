"""Rules about a JobKind as a whole, each once: for the API server in CEL, for files and the controller in Python.

The CRD is printed from this table (``hack.crds.jobkind``), so that a wrong JobKind is refused when it is written. The
rules here are those that a schema cannot state; types, patterns and bounds are those of ``inventory.api.jobkind``.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final, Generic, TypeVar

from controller.objects.meta import Struct
from inventory.api.jobkind import PodSetFields, SpecFields, StatusTest
from inventory.api.names import GROUP

T = TypeVar("T")
_ALL: Final = "[*]"


class Rule(Struct, Generic[T], frozen=True):
    """A rule. ``cel`` and ``holds`` are true of the same specifications; ``sentence`` says what is wrong with ``field``
    if they are not.
    """

    field: str
    cel: str
    holds: Callable[[T], bool]
    sentence: str


def _alike(path: str) -> str:
    return f"!has(self.{path}) || !self.{path}.contains('{_ALL}') || self.template.contains('{_ALL}')"


def _needs_all(read: Callable[[PodSetFields], str | None]) -> Callable[[PodSetFields], bool]:
    return lambda given: _ALL not in (read(given) or "") or _ALL in given.template


_BOUND: Final[tuple[tuple[str, Callable[[PodSetFields], str | None]], ...]] = (
    ("count", lambda given: given.count),
    ("atMost", lambda given: given.at_most),
    ("replicas", lambda given: given.replicas),
    ("nameFrom", lambda given: given.name_from),
    ("reclaimable", lambda given: given.reclaimable),
)

POD_SET_RULES: Final[tuple[Rule[PodSetFields], ...]] = (
    *(
        Rule(name, _alike(name), _needs_all(read), "expected no [*] where the template's path has none, found one")
        for name, read in _BOUND
    ),
    Rule(
        "name",
        f"has(self.name) || self.template.contains('{_ALL}')",
        lambda given: given.name is not None or _ALL in given.template,
        "expected the pod set's name beside a template's path without [*], found none",
    ),
    Rule(
        "nameFrom",
        "!has(self.nameFrom) || !has(self.name)",
        lambda given: given.name_from is None or given.name is None,
        "expected either name or nameFrom, found both",
    ),
    Rule(
        "defaultCount",
        "!has(self.defaultCount) || has(self.count) || self.defaultCount > 0",
        lambda given: given.default_count is None or given.count is not None or given.default_count > 0,
        "expected 1 or more where there is no count, found 0",
    ),
    Rule(
        "replicaLabel",
        "!has(self.replicaLabel) || (has(self.replicas) && has(self.indexLabel))",
        lambda given: given.replica_label is None or (given.replicas is not None and given.index_label is not None),
        "expected replicas and indexLabel beside it, found one or none",
    ),
)

_TESTS: Final = "condition, field and count"
STATUS_RULES: Final[tuple[Rule[StatusTest], ...]] = (
    Rule(
        "",
        "(has(self.condition) ? 1 : 0) + (has(self.field) ? 1 : 0) + (has(self.count) ? 1 : 0) == 1",
        lambda given: len([each for each in (given.condition, given.field, given.count) if each is not None]) == 1,
        f"expected one of {_TESTS}, found none or several",
    ),
    Rule(
        "status",
        "!has(self.status) || has(self.condition)",
        lambda given: given.status is None or given.condition is not None,
        "expected a condition beside it, found none",
    ),
    Rule(
        "values",
        "has(self.field) == (has(self.values) && size(self.values) > 0)",
        lambda given: (given.field is not None) == bool(given.values),
        "expected values beside a field and nowhere else",
    ),
    Rule(
        "atLeast",
        "!has(self.atLeast) || (has(self.count) && !has(self.allPods))",
        lambda given: given.at_least is None or (given.count is not None and given.all_pods is None),
        "expected a count beside it and no allPods",
    ),
    Rule(
        "allPods",
        "!has(self.allPods) || has(self.count)",
        lambda given: given.all_pods is None or given.count is not None,
        "expected a count beside it, found none",
    ),
)

_TAKEN: Final = ("kueue.x-k8s.io", GROUP)


def _apart(given: SpecFields) -> bool:
    templates = [each.template for each in given.pod_sets]
    return all(
        left == right or not right.startswith((f"{left}.", f"{left}[")) for left in templates for right in templates
    ) and len(set(templates)) == len(templates)


def _outside(given: SpecFields) -> bool:
    return not any(
        given.suspend == each.template or given.suspend.startswith(f"{each.template}.") for each in given.pod_sets
    )


SPEC_RULES: Final[tuple[Rule[SpecFields], ...]] = (
    Rule(
        "group",
        f"!(self.group in {list(_TAKEN)})",
        lambda given: given.group not in _TAKEN,
        f"expected the group of a kind of jobs, found one of {' and '.join(_TAKEN)}",
    ),
    Rule(
        "podSets",
        "self.podSets.all(p, self.podSets.exists_one(q, q.template == p.template) && !self.podSets.exists(q, "
        "q.template.startsWith(p.template + '.') || q.template.startsWith(p.template + '[')))",
        _apart,
        "expected templates that lie apart, found one within another or one twice",
    ),
    Rule(
        "suspend",
        "!self.podSets.exists(p, self.suspend == p.template || self.suspend.startsWith(p.template + '.'))",
        _outside,
        "expected a field outside of the pod templates, found one within",
    ),
    Rule(
        "suspended",
        "has(self.suspended) || has(self.observedGeneration)",
        lambda given: given.suspended is not None or given.observed_generation is not None,
        "expected suspended or observedGeneration, found neither: no count of pods would be known to be newer than a "
        "suspension",
    ),
)

FIXED: Final = ("group", "version", "kind", "plural", "suspend", "podSets")
"""Fields that say how objects are charged, started and restored: they never change."""
CHANGED: Final = "does not change: delete the JobKind and write it anew when it has gone"
NAME: Final = (
    "self.metadata.name == self.spec.plural + '.' + self.spec.group",
    "'metadata.name: expected ' + self.spec.plural + '.' + self.spec.group + ', found ' + self.metadata.name",
)
"""The rule about an object's name in CEL, and the CEL of its sentence."""


def broken(spec: SpecFields) -> Iterator[str]:
    """A sentence with the field's path for each rule that the specification breaks."""
    yield from _of(SPEC_RULES, spec, "spec")
    for index, pod_set in enumerate(spec.pod_sets):
        yield from _of(POD_SET_RULES, pod_set, f"spec.podSets[{index}]")
    for name in ("ready", "active", "suspended", "succeeded", "failed"):
        test = getattr(spec, name)
        if test is not None:
            yield from _of(STATUS_RULES, test, f"spec.{name}")


def _of(rules: tuple[Rule[Any], ...], given: Any, where: str) -> Iterator[str]:
    for rule in rules:
        if not rule.holds(given):
            yield f"{where}.{rule.field}: {rule.sentence}".replace(".:", ":")
