"""Rules about Deployments, StatefulSets and LeaderWorkerSets, whose pods are queued.

They count as suspended while none of their replicas is ready. Templates that another kind has stamped belong to that
kind. Sources: Kueue's webhooks in pkg/controller/reconcile/jobs/{deployment,statefulset,leaderworkerset}.
"""

from collections.abc import Iterable
from functools import partial
from typing import Final

from controller.jobs.framework import names
from controller.jobs.framework.kind import Refusal, Review, Rule, refused
from controller.jobs.framework.podview import SUSPENDING_PARENT
from controller.jobs.framework.raw import (
    Json,
    at,
    condition,
    integer,
    labels,
    mapping,
    strings,
)
from controller.jobs.framework.topologyrequest import AskingPodSet, topology_refusals
from controller.jobs.rules import cel, marks, podspec, topology
from controller.jobs.rules.fields import forbidden, invalid, label_path
from controller.jobs.rules.minimum import MINIMUM, NO_MINIMUM
from controller.jobs.rules.topology import pod_set
from controller.scheduler.model.gates import FeatureGates
from inventory.words.catalog import plural

STATEFULSET_PARENT: Final = "statefulset"

_LWS: Final = ("spec", "leaderWorkerTemplate")
_MAX_REPLICAS: Final = 1_000_000
_REPLICAS: Final = "spec.replicas"
_TEMPLATES: Final = ("leaderTemplate", "workerTemplate")
_GROUP_SIZE: Final = ".".join((*_LWS, "size"))
_KEEPS_SIZE: Final = "a queued group keeps its size"
_NOT_REMOVED: Final = "it may be changed, but not removed"
_ALL_OR_NONE: Final = "of a queued StatefulSet they change from or to 0"


# -- what they have in common


def _queue_change(review: Review, kind: str) -> list[Refusal]:
    if review.before is None:
        return []
    before, after = (labels(each).get(names.QUEUE_NAME, "") for each in (review.before, review.new))
    if before and not after:
        return [invalid(label_path(names.QUEUE_NAME), _NOT_REMOVED)]
    return marks.queue_change(review.before, review.new, kind, is_suspended=review.is_suspended)


def _queue_rule(kind: str, group: str) -> Rule:
    removed = "variables.updated && variables.queueBefore != '' && variables.queue == ''"
    change = next(rule.says["queueChange"] for rule in marks.rules(kind, group) if "queueChange" in rule.says)
    said = cel.when(removed, cel.says(label_path(names.QUEUE_NAME), _NOT_REMOVED), change)
    return Rule(refused=partial(_queue_change, kind=kind), says={"queueChange": said})


def _of_any_job(kind: str, group: str, *, created: bool) -> tuple[Rule, ...]:
    """The rules about marks for a serving kind. ``created``: with the rules for new jobs alone."""
    by_name = {name: rule for rule in marks.rules(kind, group) for name in rule.says}
    fixed = [by_name[name] for name in (("prebuilt", "execTime") if created else ())]
    return (
        marks.queue_name_rule(if_kept=True),
        _queue_rule(kind, group),
        *(only_created(rule) for rule in fixed),
        _inelastic(kind),
        by_name["priorityChange"],
        by_name["gateNames"],
    )


def _inelastic(kind: str) -> Rule:
    """The rule against elastic objects: none is created, and no existing one becomes elastic."""

    def refused_(review: Review) -> Iterable[Refusal]:
        before, after = (one is not None and marks.is_elastic(one, review.gates) for one in (review.before, review.new))
        return marks.elastic(kind) if after and not before else ()

    new = "variables.gates.ElasticJobsViaWorkloadSlices && variables.elasticMarked"
    before = "variables.updated && variables.elasticBefore"
    return Rule(refused=refused_, says={"elasticKind": cel.when(f"{new} && !({before})", marks.elastic_says(kind))})


def only_created(rule: Rule) -> Rule:
    def asked(review: Review) -> Iterable[Refusal]:
        return rule.refused(review) if review.before is None else ()

    return Rule(refused=asked, says={name: cel.when("!variables.updated", said) for name, said in rule.says.items()})


# -- Deployments


def deployment_rules() -> tuple[Rule, ...]:
    """The rules about Deployments. Topology is checked on their pods, which have the marks of pods."""
    return (*_of_any_job("Deployment", "apps", created=False), MINIMUM)


def deployment_created(deployment: Json, gates: FeatureGates) -> list[Refusal]:
    return list(refused(deployment_rules(), Review(new=deployment, gates=gates)))


def deployment_updated(old: Json, new: Json, gates: FeatureGates) -> list[Refusal]:
    return list(refused(deployment_rules(), _changed(old, new, gates)))


def _changed(old: Json, new: Json, gates: FeatureGates) -> Review:
    suspended = integer(old, "status", "readyReplicas", default=0) == 0
    return Review(new=new, before=old, gates=gates, was_suspended=suspended, is_suspended=suspended)


# -- StatefulSets


def statefulset_rules() -> tuple[Rule, ...]:
    said = cel.when("variables.queue != ''", podspec.says(_spec("oldObject"), _spec("object"), "spec.template.spec"))
    own = (
        Rule(refused=_statefulset_topology, says=topology.says()),
        Rule(refused=_template_change, says={"template": cel.when("variables.updated", said)}),
        Rule(refused=_rescaled, says={"replicas": _rescaled_says()}),
        NO_MINIMUM,
    )
    return tuple(map(_unless_anothers, (*_of_any_job("StatefulSet", "apps", created=True), *own)))


STATEFULSET_POD_SETS: Final = "[{}]".format(
    pod_set(
        cel.quoted("main"),
        cel.quoted("spec.template.metadata.annotations"),
        f"{cel.field('object', 'spec', 'replicas')}.orValue(1)",
        cel.field("object", "spec", "template", "metadata", "annotations"),
    )
)


def statefulset_created(sts: Json, gates: FeatureGates) -> list[Refusal]:
    return list(refused(statefulset_rules(), Review(new=sts, gates=gates)))


def statefulset_updated(
    old: Json, new: Json, gates: FeatureGates, *, is_owned: bool = False, workload: Json | None = None
) -> list[Refusal]:
    """The refusals of a change. ``is_owned``: a job above it is queued in its place. ``workload``: its own, if it has
    one already.
    """
    found = refused(statefulset_rules(), _changed(old, new, gates))
    own = [each for each in found if not (is_owned and each.field.startswith(("spec.template.spec", _REPLICAS)))]
    left = [] if is_owned or any(each.field == _REPLICAS for each in own) else _held_before(old, new, workload)
    return [*own, *left]


def _unless_anothers(rule: Rule) -> Rule:
    """The rule, applied only to StatefulSets whose template no other kind has stamped."""

    def asked(review: Review) -> Iterable[Refusal]:
        return () if _is_anothers(review.new) else rule.refused(review)

    stamp = f"{cel.field('object', 'spec', 'template', 'metadata', 'annotations')}.orValue({{}})"
    own = f"{stamp}[?{cel.quoted(SUSPENDING_PARENT)}].orValue('{STATEFULSET_PARENT}') == '{STATEFULSET_PARENT}'"
    return Rule(refused=asked, says={name: cel.when(own, said) for name, said in rule.says.items()})


def _is_anothers(sts: Json) -> bool:
    """Whether another kind has stamped the template: it makes the workload."""
    stamp = strings(sts, "spec", "template", "metadata", "annotations").get(SUSPENDING_PARENT, STATEFULSET_PARENT)
    return stamp != STATEFULSET_PARENT


def _spec(of: str) -> str:
    return f"{cel.field(of, 'spec', 'template', 'spec')}.orValue({{}})"


def _statefulset_topology(review: Review) -> list[Refusal]:
    path = ("spec", "template", "metadata", "annotations")
    count = integer(review.new, "spec", "replicas", default=1)
    return topology_refusals(
        [AskingPodSet(name="main", path=".".join(path), count=count, annotations=strings(review.new, *path))],
        review.gates,
    )


def _template_change(review: Review) -> list[Refusal]:
    path = ("spec", "template", "spec")
    if review.before is None or not labels(review.new).get(names.QUEUE_NAME):
        return []
    return podspec.changed(mapping(review.before, *path), mapping(review.new, *path), ".".join(path))


def _scale(review: Review) -> tuple[int, int]:
    """Replicas before and after; equal numbers if the object is not queued."""
    if review.before is None or not labels(review.new).get(names.QUEUE_NAME):
        return 0, 0
    before, after = (integer(each, "spec", "replicas", default=1) for each in (review.before, review.new))
    return before, after


def _rescaled(review: Review) -> list[Refusal]:
    """Refusals of a new number of replicas: it changes to 0 and, once the old pods and their quota are gone, from 0."""
    before, after = _scale(review)
    if after in (before, 0):
        return []
    if before > 0:
        return [invalid(_REPLICAS, f"{_ALL_OR_NONE}; found {after}, was {before}")]
    left = integer(review.new, "status", "replicas", default=0)
    return (
        [forbidden(_REPLICAS, f"it is still being scaled down: {plural(left, 'pod is', 'pods are')} left")]
        if left > 0
        else []
    )


def _rescaled_says() -> str:
    before, after = (f"{cel.field(at, 'spec', 'replicas')}.orValue(1)" for at in ("oldObject", "object"))
    left = f"{cel.field('object', 'status', 'replicas')}.orValue(0)"
    changed = cel.text(
        cel.quoted(f"{_REPLICAS}: {_ALL_OR_NONE}; found "), f"string({after})", "', was '", f"string({before})"
    )
    those = cel.when(f"{left} == 1", "' pod is left'", "' pods are left'")
    going = cel.text(cel.quoted(f"{_REPLICAS}: it is still being scaled down: "), f"string({left})", those)
    found = cel.when(f"{before} > 0", changed, cel.when(f"{left} > 0", going))
    return cel.when(
        "variables.updated && variables.queue != ''", cel.when(f"{after} != {before} && {after} != 0", found)
    )


def _held_before(old: Json, new: Json, workload: Json | None) -> list[Refusal]:
    """Refusals of a new size while the former one holds quota. Only the controller knows that."""
    before, after = _scale(Review(new=new, before=old))
    if _is_anothers(new) or workload is None or after in (before, 0) or before > 0:
        return []
    if condition(workload, "QuotaReserved").get("reason") == "OnHold":
        return []
    return [forbidden(_REPLICAS, "its workload of before is still there")]


# -- LeaderWorkerSets


def leaderworkerset_rules() -> tuple[Rule, ...]:
    return (
        *_of_any_job("LeaderWorkerSet", "leaderworkerset.x-k8s.io", created=True),
        Rule(refused=_sized, says={"groups": _sized_says()}),
        Rule(refused=_group_topology, says=topology.says()),
        Rule(refused=_templates_change, says=_templates_say()),
        Rule(refused=_resized, says={"size": _resized_says()}),
        MINIMUM,
    )


def leaderworkerset_created(lws: Json, gates: FeatureGates) -> list[Refusal]:
    return list(refused(leaderworkerset_rules(), Review(new=lws, gates=gates)))


def leaderworkerset_updated(old: Json, new: Json, gates: FeatureGates) -> list[Refusal]:
    return list(refused(leaderworkerset_rules(), _changed(old, new, gates)))


def _size(lws: Json) -> int:
    return integer(lws, *_LWS, "size", default=1)


def _sized(review: Review) -> list[Refusal]:
    replicas = integer(review.new, "spec", "replicas", default=1)
    if 0 <= replicas <= _MAX_REPLICAS:
        return []
    return [invalid(_REPLICAS, f"expected 0 to {_MAX_REPLICAS} groups, found {replicas}")]


def _sized_says() -> str:
    replicas = f"{cel.field('object', 'spec', 'replicas')}.orValue(1)"
    sentence = cel.text(cel.quoted(f"{_REPLICAS}: expected 0 to {_MAX_REPLICAS} groups, found "), f"string({replicas})")
    return cel.when(f"{replicas} < 0 || {replicas} > {_MAX_REPLICAS}", sentence)


def _templates_change(review: Review) -> list[Refusal]:
    old, new = review.before, review.new
    if old is None or not labels(new).get(names.QUEUE_NAME):
        return []
    refusals: list[Refusal] = []
    for key in _TEMPLATES:
        path = (*_LWS, key, "spec")
        if at(old, *_LWS, key) is not None and at(new, *_LWS, key) is not None:
            refusals += podspec.changed(mapping(old, *path), mapping(new, *path), ".".join(path))
    return refusals


def _templates_say() -> dict[str, str]:
    rules = {}
    for key in _TEMPLATES:
        old, new = (cel.field(of, *_LWS, key) for of in ("oldObject", "object"))
        both = f"variables.updated && variables.queue != '' && {old}.hasValue() && {new}.hasValue()"
        before, after = (f"{each}.?spec.orValue({{}})" for each in (old, new))
        rules[key] = cel.when(both, podspec.says(before, after, ".".join((*_LWS, key, "spec"))))
    return rules


def _resized(review: Review) -> list[Refusal]:
    old, new = review.before, review.new
    if old is None or not labels(new).get(names.QUEUE_NAME) or not review.gates.on("LWSImmutableGroupSize"):
        return []
    return [] if _size(old) == _size(new) else [invalid(_GROUP_SIZE, _KEEPS_SIZE)]


def _resized_says() -> str:
    before, after = (f"{cel.field(of, *_LWS, 'size')}.orValue(1)" for of in ("oldObject", "object"))
    fixed = "variables.updated && variables.queue != '' && variables.gates.LWSImmutableGroupSize"
    return cel.when(fixed, cel.when(f"{before} != {after}", cel.says(_GROUP_SIZE, _KEEPS_SIZE)))


def _group_topology(review: Review) -> list[Refusal]:
    lws = review.new
    has_leader = at(lws, *_LWS, "leaderTemplate") is not None
    workers = _size(lws) - (1 if has_leader else 0)
    sets = [("leader", "leaderTemplate", 1)] if has_leader else []
    return topology_refusals(
        [
            AskingPodSet(
                name=name,
                path=".".join((*_LWS, key, "metadata", "annotations")),
                count=count,
                annotations=strings(lws, *_LWS, key, "metadata", "annotations"),
            )
            for name, key, count in [*sets, ("worker" if has_leader else "main", "workerTemplate", workers)]
        ],
        review.gates,
    )


def _group_pod_sets() -> str:
    has_leader = f"{cel.field('object', *_LWS, 'leaderTemplate')}.hasValue()"
    size = f"{cel.field('object', *_LWS, 'size')}.orValue(1)"
    leader, workers = (
        pod_set(
            name,
            cel.quoted(".".join((*_LWS, key, "metadata", "annotations"))),
            count,
            cel.field("object", *_LWS, key, "metadata", "annotations"),
        )
        for name, key, count in (
            (cel.quoted("leader"), "leaderTemplate", "1"),
            (f"({has_leader} ? 'worker' : 'main')", "workerTemplate", f"{size} - ({has_leader} ? 1 : 0)"),
        )
    )
    return f"({has_leader} ? [{leader}] : []) + [{workers}]"


LEADERWORKERSET_POD_SETS: Final = _group_pod_sets()
