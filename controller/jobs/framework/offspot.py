"""The required node affinity by which kube-scheduler, or an autoscaler, keeps pods off spot nodes, in JSON.

Where the controller chooses the nodes of pods it needs none. It is for pods whose nodes others choose.
"""

from collections.abc import Sequence

from controller.jobs.framework.raw import Json, copied, mapping, sequence
from controller.scheduler.topology.requests import SpotRule

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def off_spot(rule: SpotRule | None) -> tuple[Json, ...]:
    """The expressions that no spot node meets; none where spot nodes are open to the pods."""
    if rule is None or rule.wanted or not rule.required:
        return ()
    values: dict[str, list[str]] = {}
    for key, value in sorted(rule.labels):
        values.setdefault(key, []).append(value)
    return tuple({"key": key, "operator": "NotIn", "values": those} for key, those in values.items())


def kept_off(affinity: Json, expressions: Sequence[Json]) -> Json:
    """A pod's affinity with these expressions in each term. A term without any rule admits no node, and stays."""
    if not expressions:
        return affinity
    made: Json = copied(affinity)
    required = made.setdefault("nodeAffinity", {}).setdefault(_REQUIRED, {})
    terms = sequence(required, "nodeSelectorTerms")
    required["nodeSelectorTerms"] = [_with(term, expressions) for term in terms] or [
        {"matchExpressions": copied(list(expressions))}
    ]
    return made


def _with(term: Json, expressions: Sequence[Json]) -> Json:
    own = sequence(term, "matchExpressions")
    if not own and not sequence(term, "matchFields"):
        return term
    return {**term, "matchExpressions": [*own, *(copied(each) for each in expressions if each not in own)]}


def with_affinity(spec: Json, expressions: Sequence[Json]) -> None:
    """Writes the affinity into a pod's spec."""
    if expressions:
        spec["affinity"] = kept_off(mapping(spec, "affinity"), expressions)
