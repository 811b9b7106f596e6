"""Which of Kueue's webhook cases an API server cannot answer as Kueue's webhook does, by rules over what they ask.

And with which values of the chart it answers the others.
"""

import re
from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec

from controller.jobs.framework import names
from controller.jobs.framework.kind import Review, Rule, refused
from controller.jobs.framework.raw import Json, at, labels
from controller.jobs.kinds.policies import RULED, Ruled, review
from controller.scheduler.model.gates import FeatureGates
from tests.conformance.kueuejobs import differences
from tests.conformance.kueuejobs.runners_podsets import filled
from tests.conformance.replay import RUNNERS
from tests.support.e2e.webhookcases import Asked, managed_by
from tests.support.queuerules import requests, schemas

BY_KIND: Final = {ruled.kind: ruled for ruled in RULED}
_OTHERS: Final = ("apiObjects", "objs", "clusterTrainingRuntime", "nsHasDefaultQueue", "defaultLqExist")
_LABEL: Final = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")


class Setting(NamedTuple):
    """The chart's values that a case needs: whether jobs without a queue wait too, and gates that are not at their
    defaults.
    """

    manages_all: bool = False
    gates: tuple[tuple[str, bool], ...] = ()

    @property
    def values(self) -> Json:
        jobs, config = {"manageWithoutQueueName": self.manages_all}, {"featureGates": dict(self.gates)}
        return {"jobs": jobs, "config": config}


def setting(asked: Asked) -> Setting:
    """Gates only where they decide: all other cases are asked of one rendering of the chart."""
    managed = any(asked.case.input.get(key) for key in ("manageJobsWithoutQueueName", "manageAll"))
    gates: Json = asked.case.input.get("featureGatesNonDefault") or {}
    return Setting(managed, tuple(sorted(gates.items())) if _hangs_on_gates(asked) else ())


def sentences(asked: Asked) -> list[str]:
    """What our policies say of it. Of two that refuse, an API server names either."""
    ruled = BY_KIND[asked.kind]
    seen = _seen(ruled, asked, FeatureGates(dict(setting(asked).gates)))
    starts = ["only the controller starts a "] if seen.was_suspended and not seen.is_suspended else []
    return [*(f"{one.field}: {one.sentence}" for one in refused(ruled.rules, seen)), *starts]


def reason(asked: Asked) -> str:
    """Empty for a case that is sent and compared."""
    return next((why for why, applies in REASONS if applies(asked)), "")


def _is_declared(asked: Asked) -> bool:
    """A rule of conformance lets our rules say otherwise, and they do."""
    case = asked.case
    rules = [rule for rule in differences.RULES if rule.applies(case.input)]
    difference = RUNNERS[case.suite](case) if rules else None
    return difference is not None and any(rule.covers(case.input, difference) for rule in rules)


def _hangs_on_gates(asked: Asked) -> bool:
    ruled = BY_KIND.get(asked.kind)
    if ruled is None:
        # Of Kueue's own kinds gates decide about Workloads alone; a ClusterQueue may be too large to be judged here.
        return asked.kind == "Workload" and (
            _is_refused_of_queues(asked, asked.case.gates) != _is_refused_of_queues(asked)
        )
    return _is_refused(ruled, _seen(ruled, asked, asked.case.gates)) != _is_refused(ruled, _seen(ruled, asked))


def _is_refused_of_queues(asked: Asked, gates: FeatureGates | None = None) -> bool:
    """Of kinds of Kueue's own: by the chart's schemas and policies."""
    found = (
        requests.created(asked.new, gates=gates) if asked.old is None else requests.updated(asked.old, asked.new, gates)
    )
    return bool(found)


def _is_of_another_kind(asked: Asked) -> bool:
    """The rules of one kind are asked about an object of another."""
    named = (asked.case.input.get("gvk") or {}).get("Kind", asked.kind)
    return bool(named != asked.kind)


def _is_the_controllers(asked: Asked) -> bool:
    """Refused, and not by what the policies know: it is one of the rules without CEL, or there are other objects."""
    ruled = BY_KIND.get(asked.kind)
    if ruled is None or asked.made is not None or not asked.refused:
        return False
    if _is_refused(ruled, _seen(ruled, asked, asked.case.gates)):
        return False
    more = any(asked.case.input.get(key) for key in _OTHERS)
    return more or bool(refused([rule for rule in ruled.rules if not rule.says], review(ruled, asked.new, asked.old)))


def _seen(ruled: Ruled, asked: Asked, gates: FeatureGates | None = None) -> Review:
    return msgspec.structs.replace(review(ruled, asked.new, asked.old), gates=gates or FeatureGates())


def _is_refused(ruled: Ruled, seen: Review) -> bool:
    """By rules that the API server knows."""
    known: list[Rule] = [rule for rule in ruled.rules if rule.says]
    return bool(refused(known, seen))


def _is_dispatched(asked: Asked) -> bool:
    """The object that is made names the controller that runs it elsewhere, and the one that is sent does not."""
    wanted = asked.case.expect.get("wantManagedBy") if asked.made is None else managed_by(asked.made)
    return wanted != managed_by(asked.new) and wanted is not None


def _says_a_wrong_managed_by(asked: Asked) -> bool:
    found = at(asked.new, "spec", "managedBy")
    return isinstance(found, str) and "/" not in found


def _has_a_wrong_label(asked: Asked) -> bool:
    """On what lies there already, or on what Kueue lets in."""

    def is_wrong(one: Json) -> bool:
        return not all(_LABEL.fullmatch(value) for value in labels(one).values())

    return (asked.old is not None and is_wrong(asked.old)) or (not asked.refused and is_wrong(asked.new))


def _is_written_without_a_queue(asked: Asked) -> bool:
    made = asked.made
    if made is None or labels(made).get(names.QUEUE_NAME) or setting(asked).manages_all:
        return False
    return bool(filled(made) != filled(asked.new))


def _is_refused_as_made(asked: Asked) -> bool:
    """An API server asks the rules about an object with its defaults; Kueue's test of the defaults does not."""
    ruled = BY_KIND.get(asked.kind)
    return ruled is not None and asked.made is not None and bool(refused(ruled.rules, review(ruled, asked.made)))


def _leaves_its_queue(asked: Asked) -> bool:
    """A held job without its label could be started by anybody who may edit it."""
    ruled = BY_KIND.get(asked.kind)
    if ruled is None or asked.old is None or asked.refused or not _seen(ruled, asked).was_suspended:
        return False
    return bool(labels(asked.old).get(names.QUEUE_NAME)) and not labels(asked.new).get(names.QUEUE_NAME)


def _changes_nothing(asked: Asked) -> bool:
    return asked.refused and asked.old == asked.new


def _never_lay_there(asked: Asked) -> bool:
    """It was made before there were rules about it."""
    return asked.old is not None and asked.kind == "ClusterQueue" and bool(requests.created(asked.old))


def _has_gaps(asked: Asked) -> bool:
    if asked.kind in BY_KIND or asked.refused:
        return False
    return any(bool(schemas.whole(asked.kind, one).gaps) for one in (asked.old, asked.new) if one is not None)


REASONS: Final[tuple[tuple[str, Callable[[Asked], bool]], ...]] = (
    ("a difference on purpose, which conformance declares", _is_declared),
    ("a difference on purpose: only the controller takes a held job out of its queue", _leaves_its_queue),
    ("rules of another kind than the object's", _is_of_another_kind),
    ("the controller refuses it: the rule asks for other objects, or for what CEL cannot read", _is_the_controllers),
    ("MultiKueue's managedBy", _is_dispatched),
    ("Kubernetes refuses such a managedBy", _says_a_wrong_managed_by),
    ("Kubernetes refuses such a label", _has_a_wrong_label),
    ("a value that the CRD requires is left out, which is refused before any webhook", _has_gaps),
    ("an update that changes nothing passes: what became wrong can still be taken away", _changes_nothing),
    ("what goes to no queue is left as it is", _is_written_without_a_queue),
    ("the object with its defaults is refused by a rule about its creation", _is_refused_as_made),
    ("an object of before the policies, which refuse it now", _never_lay_there),
)
