"""Rules about KAI's Queues and PodGroups: ``scheduling.run.ai`` v2 and v2alpha2.

Source: KAI's webhooks of both. An object that gets a warning there is accepted without one. The controller checks
whether a queue's parent exists, and whether several subgroups lie in a circle.
"""

from collections.abc import Iterator
from typing import Final

from controller.foreign.rules.ruled import ForeignKind, bounded, duplicates, first_items, place
from controller.jobs.framework.kind import Refusal, Review, Rule
from controller.jobs.framework.raw import Json, at, mapping, sequence, shown, text
from controller.jobs.rules import cel
from controller.jobs.rules.fields import forbidden, invalid, required

_RESOURCES: Final = "expected quotas of gpu, cpu and memory, found none"
_HAS_CHILDREN: Final = "expected a queue without child queues, found "
_BOTH: Final = "expected minMember or minSubGroup, found both"
_NO_PARENT: Final = "expected the name of another subgroup, found "
_LEAF_NEEDS: Final = "expected a number of pods: no subgroup has this one for its parent"
_LEAF_HAS_NONE: Final = "expected none: no subgroup has this one for its parent"
_INNER_HAS_NONE: Final = "expected none: pods are in the subgroups that have this one for their parent"


def _resources(review: Review) -> Iterator[Refusal]:
    if not mapping(review.new, "spec", "resources"):
        yield required("spec.resources", _RESOURCES)


def _childless(review: Review) -> Iterator[Refusal]:
    children = sequence(review.new, "status", "childQueues")
    if children:
        yield forbidden("status.childQueues", _HAS_CHILDREN + shown(str(children[0])))


def _childless_says() -> str:
    children = "oldObject.?status.?childQueues.orValue([])"
    sentence = cel.text(cel.quoted(f"status.childQueues: {_HAS_CHILDREN}"), cel.shown(f"{children}[0]"))
    return cel.when(f"size({children}) > 0", sentence)


KAI_QUEUE: Final = ForeignKind(
    system="kai",
    group="scheduling.run.ai",
    version="v2",
    kind="Queue",
    plural="queues",
    rules=(
        Rule(
            refused=_resources,
            says={
                "resources": cel.when(
                    "size(object.?spec.?resources.orValue({})) == 0", cel.says("spec.resources", _RESOURCES)
                )
            },
        ),
    ),
    deletions=(Rule(refused=_childless, says={"children": _childless_says()}),),
)


# -- pod groups


def _one_minimum(review: Review) -> Iterator[Refusal]:
    where = {"spec": mapping(review.new, "spec")}
    where |= {
        f"spec.subGroups[{index}]": each for index, each in enumerate(first_items(review.new, "spec", "subGroups"))
    }
    for path, minimum in where.items():
        if at(minimum, "minMember") is not None and at(minimum, "minSubGroup") is not None:
            yield invalid(path, _BOTH)


def _one_minimum_says() -> str:
    both = "{0}.?minMember.hasValue() && {0}.?minSubGroup.hasValue()"
    each = cel.when(both.format("variables.groups[i]"), place("spec.subGroups", "i", f": {_BOTH}"))
    return cel.any_of(
        cel.when(both.format("object.?spec"), cel.says("spec", _BOTH)),
        cel.first(f"{cel.places('variables.groups')}.map(i, {each})"),
    )


def _names(review: Review) -> Iterator[Refusal]:
    for name in duplicates(text(group, "name") for group in first_items(review.new, "spec", "subGroups")):
        yield invalid("spec.subGroups", f"expected each name once, found again {shown(name)}")


def _names_says() -> str:
    again = "variables.names.filter(n, variables.names.filter(m, m == n).size() > 1)"
    sentence = cel.text(cel.quoted("spec.subGroups: expected each name once, found again "), cel.shown(f"{again}[0]"))
    return cel.when(f"size({again}) > 0", sentence)


def _parents(review: Review) -> Iterator[Refusal]:
    groups = first_items(review.new, "spec", "subGroups")
    names = [text(group, "name") for group in groups]
    for index, group in enumerate(groups):
        parent = text(group, "parent")
        if parent and (parent not in names or parent == names[index]):
            yield invalid(f"spec.subGroups[{index}].parent", _NO_PARENT + shown(parent))


def _parents_says() -> str:
    parent = "variables.groups[i].?parent.orValue('')"
    wrong = f"{parent} != '' && (!({parent} in variables.names) || {parent} == variables.names[i])"
    sentence = cel.text(place("spec.subGroups", "i", f".parent: {_NO_PARENT}"), cel.shown(parent))
    return cel.first(f"{cel.places('variables.groups')}.map(i, {cel.when(wrong, sentence)})")


def _minimums(review: Review) -> Iterator[Refusal]:
    """Refusals of a changed minimum: an inner subgroup that was made with a minimum of pods keeps it. KAI warns of a
    change.
    """
    groups = first_items(review.new, "spec", "subGroups")
    parents = {text(group, "parent") for group in groups}
    for index, group in enumerate(groups):
        path, pods, children = f"spec.subGroups[{index}]", *_given(group)
        if text(group, "name") in parents:
            if pods and review.before is None:
                yield invalid(f"{path}.minMember", _INNER_HAS_NONE)
        elif not pods:
            yield required(f"{path}.minMember", _LEAF_NEEDS)
        elif children:
            yield invalid(f"{path}.minSubGroup", _LEAF_HAS_NONE)


def _given(group: Json) -> tuple[bool, bool]:
    return at(group, "minMember") is not None, at(group, "minSubGroup") is not None


def _minimums_says() -> str:
    pods, children = (f"variables.groups[i].?{key}.hasValue()" for key in ("minMember", "minSubGroup"))
    leaf = cel.when(
        f"!{pods}",
        place("spec.subGroups", "i", f".minMember: {_LEAF_NEEDS}"),
        cel.when(children, place("spec.subGroups", "i", f".minSubGroup: {_LEAF_HAS_NONE}")),
    )
    inner = cel.when(f"{pods} && !variables.updated", place("spec.subGroups", "i", f".minMember: {_INNER_HAS_NONE}"))
    is_inner = "variables.groups.exists(g, g.?parent.orValue('') == variables.names[i])"
    return cel.first(f"{cel.places('variables.groups')}.map(i, {cel.when(is_inner, inner, leaf)})")


KAI_POD_GROUP: Final = ForeignKind(
    system="kai",
    group="scheduling.run.ai",
    version="v2alpha2",
    kind="PodGroup",
    plural="podgroups",
    own_variables=(
        ("groups", bounded("object.?spec.?subGroups.orValue([])")),
        ("names", "variables.groups.map(g, g.?name.orValue(''))"),
    ),
    rules=(
        Rule(refused=_one_minimum, says={"oneMinimum": _one_minimum_says()}),
        Rule(refused=_names, says={"names": _names_says()}),
        Rule(refused=_parents, says={"parents": _parents_says()}),
        Rule(refused=_minimums, says={"minimums": _minimums_says()}),
    ),
)
