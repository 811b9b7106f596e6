"""Rules about Volcano's Queues and PodGroups, ``scheduling.volcano.sh/v1beta1``.

Source: Volcano's webhooks of both. The controller checks what depends on other queues: whether the parent exists and is
no descendant, whether capabilities lie below the parent's, and whether guarantees and deserved amounts of all children
fit into it; and whether a queue that is to be deleted has children.
"""

from collections.abc import Iterator
from typing import Final

from controller.foreign.rules.ruled import ForeignKind, bounded, duplicates, first_items, place
from controller.foreign.rules.volcanojob import TIERS, both_tiers
from controller.jobs.framework.kind import Refusal, Review, Rule
from controller.jobs.framework.raw import Json, at, integer, mapping, shown, text
from controller.jobs.rules import cel
from controller.jobs.rules.fields import forbidden, invalid
from controller.objects.quantity import QuantityError, parse_quantity

ROOT: Final = "root"
DEFAULT: Final = "default"
_AMOUNTS: Final = ("capability", "deserved", "guarantee")
_OWN_PARENT: Final = "expected another queue, found the queue itself"
NO_NODE_GROUPS: Final = "expected none: pods name their nodes themselves here, by nodeSelector or nodeAffinity"
_NODE_GROUPS: Final = ("nodeGroupAffinity", "nodeGroupAntiAffinity")
_REQUIRED_GROUPS: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_ROOT_KEEPS: Final = "expected no change: the root queue has what the cluster has"
_STAYS: Final = "expected a queue other than default and root: they are there for jobs without a queue"
_HAS_GROUPS: Final = "expected a queue without pod groups, found "
_COUNTED: Final = ("pending", "inqueue", "running", "unknown")


def _own_parent(review: Review) -> Iterator[Refusal]:
    name = text(review.new, "metadata", "name")
    if name and text(review.new, "spec", "parent") == name:
        yield invalid("spec.parent", _OWN_PARENT)


def _own_parent_says() -> str:
    itself = "object.?spec.?parent.orValue('') == object.metadata.?name.orValue('') && object.metadata.?name.hasValue()"
    return cel.when(itself, cel.says("spec.parent", _OWN_PARENT))


def _guarantee(review: Review) -> Iterator[Refusal]:
    """Refusals of guarantees, for resources that also have a deserved amount: a queue without one has its guarantee
    alone.
    """
    deserved, guarantee = mapping(review.new, "spec", "deserved"), mapping(review.new, "spec", "guarantee", "resource")
    for name in sorted(guarantee.keys() & deserved.keys()):
        try:
            fits = parse_quantity(str(guarantee[name])) <= parse_quantity(str(deserved[name]))
        except QuantityError:
            continue  # the CRD refuses it
        if not fits:
            most, found = shown(str(deserved[name])), shown(str(guarantee[name]))
            sentence = f"expected at most what is deserved ({most}), found {found}"
            yield invalid(f"spec.guarantee.resource[{name}]", sentence)


def _guarantee_says() -> str:
    deserved, guarantee = "object.?spec.?deserved.orValue({})", "object.?spec.?guarantee.?resource.orValue({})"
    most, guaranteed = f"string({deserved}[r])", f"string({guarantee}[r])"
    amounts = (
        f"isQuantity({most}) && isQuantity({guaranteed}) && quantity({guaranteed}).isGreaterThan(quantity({most}))"
    )
    sentence = cel.text(
        "'spec.guarantee.resource['",
        "r",
        "']: expected at most what is deserved ('",
        cel.shown(most),
        "'), found '",
        cel.shown(guaranteed),
    )
    resources = f"{guarantee}.map(r, r).filter(r, r in {deserved})"
    return cel.first(f"{resources}.map(r, {cel.when(amounts, sentence)})")


def _groups(review: Review) -> Iterator[Refusal]:
    for which in _NODE_GROUPS:
        if at(review.new, "spec", "affinity", which, _REQUIRED_GROUPS):
            yield invalid(f"spec.affinity.{which}.{_REQUIRED_GROUPS}", NO_NODE_GROUPS)


def _groups_says() -> str:
    return cel.any_of(
        *(
            cel.when(
                f"size(object.?spec.?affinity.?{which}.?{_REQUIRED_GROUPS}.orValue([])) > 0",
                cel.says(f"spec.affinity.{which}.{_REQUIRED_GROUPS}", NO_NODE_GROUPS),
            )
            for which in _NODE_GROUPS
        )
    )


def _root(review: Review) -> Iterator[Refusal]:
    old, new = review.before, review.new
    if old is None or text(new, "metadata", "name") != ROOT:
        return
    for key in _AMOUNTS:
        if at(old, "spec", key) != at(new, "spec", key):
            yield forbidden(f"spec.{key}", _ROOT_KEEPS)


def _root_says() -> str:
    changed = [
        cel.when(f"object.?spec.?{key} == oldObject.?spec.?{key}", "''", cel.says(f"spec.{key}", _ROOT_KEEPS))
        for key in _AMOUNTS
    ]
    return cel.when(
        f"variables.updated && object.metadata.?name.orValue('') == '{ROOT}'",
        cel.any_of(*changed),
    )


def _stays(review: Review) -> Iterator[Refusal]:
    if text(review.new, "metadata", "name") in (DEFAULT, ROOT):
        yield forbidden("metadata.name", _STAYS)


def _has_groups(review: Review) -> Iterator[Refusal]:
    found = sum(integer(review.new, "status", key, default=0) for key in _COUNTED)
    if found:
        yield forbidden("status", f"{_HAS_GROUPS}{found}")


def _deletions() -> tuple[Rule, ...]:
    is_builtin = f"oldObject.metadata.?name.orValue('') in ['{DEFAULT}', '{ROOT}']"
    count = " + ".join(f"oldObject.?status.?{key}.orValue(0)" for key in _COUNTED)
    sentence = cel.text(cel.quoted(f"status: {_HAS_GROUPS}"), f"string({count})")
    return (
        Rule(refused=_stays, says={"stays": cel.when(is_builtin, cel.says("metadata.name", _STAYS))}),
        Rule(refused=_has_groups, says={"groups": cel.when(f"{count} > 0", sentence)}),
    )


VOLCANO_QUEUE: Final = ForeignKind(
    system="volcano",
    group="scheduling.volcano.sh",
    version="v1beta1",
    kind="Queue",
    plural="queues",
    rules=(
        Rule(refused=_own_parent, says={"parent": _own_parent_says()}),
        Rule(refused=_guarantee, says={"guarantee": _guarantee_says()}),
        Rule(refused=_groups, says={"nodeGroups": _groups_says()}),
        Rule(refused=_root, says={"root": _root_says()}),
    ),
    deletions=_deletions(),
)


# -- pod groups


def _group_tiers(review: Review) -> Iterator[Refusal]:
    policies = first_items(review.new, "spec", "subGroupPolicy")
    where: dict[str, Json] = {"spec.networkTopology": mapping(review.new, "spec", "networkTopology")}
    for index, policy in enumerate(policies):
        where[f"spec.subGroupPolicy[{index}].networkTopology"] = mapping(policy, "networkTopology")
    for path, topology in where.items():
        if at(topology, "highestTierAllowed") is not None and text(topology, "highestTierName"):
            yield invalid(path, TIERS)


def _group_tiers_says() -> str:
    of_policy = place("spec.subGroupPolicy", "i", f".networkTopology: {TIERS}")
    each = cel.when(both_tiers("variables.policies[i].?networkTopology"), of_policy)
    return cel.any_of(
        cel.when(both_tiers("object.?spec.?networkTopology"), cel.says("spec.networkTopology", TIERS)),
        cel.first(f"{cel.places('variables.policies')}.map(i, {each})"),
    )


def _policy_names(review: Review) -> Iterator[Refusal]:
    names = [text(policy, "name") for policy in first_items(review.new, "spec", "subGroupPolicy")]
    for name in duplicates(name for name in names if name):
        yield invalid("spec.subGroupPolicy", f"expected each name once, found again {shown(name)}")


def _policy_names_says() -> str:
    names = "variables.policies.map(p, p.?name.orValue('')).filter(n, n != '')"
    again = f"{names}.filter(n, {names}.filter(m, m == n).size() > 1)"
    sentence = cel.text(
        cel.quoted("spec.subGroupPolicy: expected each name once, found again "), cel.shown(f"{again}[0]")
    )
    return cel.when(f"size({again}) > 0", sentence)


VOLCANO_POD_GROUP: Final = ForeignKind(
    system="volcano",
    group="scheduling.volcano.sh",
    version="v1beta1",
    kind="PodGroup",
    plural="podgroups",
    own_variables=(("policies", bounded("object.?spec.?subGroupPolicy.orValue([])")),),
    rules=(
        Rule(refused=_group_tiers, says={"tiers": _group_tiers_says()}),
        Rule(refused=_policy_names, says={"policyNames": _policy_names_says()}),
    ),
)
