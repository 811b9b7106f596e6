"""Rules about the lifecycle policies of Volcano's Jobs: which event leads to which action.

Source: Volcano's webhook of Jobs. Policies stand on the job and on each of its tasks.
"""

from collections.abc import Iterator
from typing import Final

from controller.foreign.rules.ruled import bounded, duplicates, first_items, listed, place
from controller.jobs.framework.kind import Refusal, Review, Rule
from controller.jobs.framework.raw import Json, at, sequence, shown, text
from controller.jobs.rules import cel
from controller.jobs.rules.fields import invalid

ANY: Final = "*"
EVENTS: Final = (
    ANY, "PodPending", "PodFailed", "PodEvicted", "Unknown", "TaskCompleted", "TaskFailed", "JobUpdated",
)  # fmt: skip
ACTIONS: Final = (
    "AbortJob", "RestartJob", "RestartTask", "RestartPod", "RestartPartition", "TerminateJob", "CompleteJob",
    "ResumeJob",
)  # fmt: skip
_EXPECTED_EVENT: Final = f"expected one of {', '.join(EVENTS)}, found "
_EXPECTED_ACTION: Final = f"expected one of {', '.join(ACTIONS)}, found "
_EITHER: Final = "expected an event or an exitCode, found "
_ZERO: Final = "expected a number other than 0, found 0"
_ONCE: Final = "expected each event and each exitCode once, found again "
_ALONE: Final = f"expected the event {ANY} alone, found others beside it"


class _Policy:
    """One policy as rules read it."""

    def __init__(self, given: Json) -> None:
        single, exits = text(given, "event"), at(given, "exitCode")
        self.events = ([single] if single else []) + [str(each) for each in sequence(given, "events")]
        self.exits: list[int] = [] if exits is None else [exits]
        self.action = text(given, "action")

    @property
    def causes(self) -> list[str]:
        return self.events + [str(each) for each in self.exits]


def _lists(job: Json) -> Iterator[tuple[str, list[_Policy]]]:
    """Every list of policies with its path."""
    yield "spec.policies", [_Policy(each) for each in first_items(job, "spec", "policies")]
    for index, task in enumerate(first_items(job, "spec", "tasks")):
        yield f"spec.tasks[{index}].policies", [_Policy(each) for each in first_items(task, "policies")]


def _lists_in_cel() -> str:
    def items(policies: str) -> str:
        events = "(p.?event.orValue('') == '' ? [] : [p.event]) + p.?events.orValue([])"
        exits = "p.?exitCode.hasValue() ? [p.exitCode] : []"
        return (
            f"{bounded(policies)}.map(p, {{'events': dyn({events}), 'exits': dyn({exits}),"
            " 'action': dyn(p.?action.orValue(''))})"
        )

    own = f"[{{'path': dyn('spec.policies'), 'items': dyn({items('object.?spec.?policies.orValue([])')})}}]"
    of_tasks = items("variables.tasks[i].?policies.orValue([])")
    path = place("spec.tasks", "i", ".policies")
    tasks = f"{cel.places('variables.tasks')}.map(i, {{'path': dyn({path}), 'items': dyn({of_tasks})}})"
    return f"{own} + {tasks}"


VARIABLES: Final = (
    ("policies", _lists_in_cel()),
    (
        "causes",
        "variables.policies.map(o, o.items.map(p, p.events + p.exits.map(x, string(x))))",
    ),
)
"""Variables in CEL, after ``tasks``: lists of policies with their paths, and of each list the events and exit codes by
policy. They are not flattened: API servers before Kubernetes 1.35 have no function for it."""


def rules() -> tuple[Rule, ...]:
    one_by_one = {
        "policyCause": _each_says(
            "(size(p.events) > 0) == (size(p.exits) > 0)",
            cel.quoted(f": {_EITHER}"),
            cel.when("size(p.events) > 0", "'both'", "'neither'"),
        ),
        "policyEvents": _each_says(
            f"p.events.exists(e, !(e in {listed(EVENTS)}))",
            cel.quoted(f".events: {_EXPECTED_EVENT}"),
            cel.shown(f"p.events.filter(e, !(e in {listed(EVENTS)}))[0]"),
        ),
        "policyAction": _each_says(
            f"!(p.action in {listed(ACTIONS)})", cel.quoted(f".action: {_EXPECTED_ACTION}"), cel.shown("p.action")
        ),
        "policyExit": _each_says("0 in p.exits", cel.quoted(f".exitCode: {_ZERO}")),
    }
    return (
        Rule(refused=_each, says=one_by_one),
        Rule(refused=_once, says={"policyOnce": _once_says()}),
        Rule(refused=_alone, says={"policyAlone": _alone_says()}),
    )


def _each(review: Review) -> Iterator[Refusal]:
    for path, policies in _lists(review.new) if review.before is None else ():
        for index, policy in enumerate(policies):
            here = f"{path}[{index}]"
            if bool(policy.events) == bool(policy.exits):
                yield invalid(here, _EITHER + ("both" if policy.events else "neither"))
            wrong = [event for event in policy.events if event not in EVENTS]
            if wrong:
                yield invalid(f"{here}.events", _EXPECTED_EVENT + shown(wrong[0]))
            if policy.action not in ACTIONS:
                yield invalid(f"{here}.action", _EXPECTED_ACTION + shown(policy.action))
            if 0 in policy.exits:
                yield invalid(f"{here}.exitCode", _ZERO)


def _each_says(condition: str, *sentence: str) -> str:
    """The sentence about the first policy that ``condition`` holds for. ``condition`` and ``sentence`` are about
    ``p``.
    """
    path = cel.text("o.path", "'['", "string(k)", "']'")
    said = f"[o.items[k]].map(p, {cel.when(condition, cel.text(path, *sentence))})[0]"
    found = cel.first(f"{cel.places('o.items')}.map(k, {said})")
    return _created_alone(cel.first(f"variables.policies.map(o, {found})"))


def _created_alone(sentence: str) -> str:
    """The sentence, for new objects alone: no update changes a policy."""
    return cel.when("!variables.updated", sentence)


def _once(review: Review) -> Iterator[Refusal]:
    for path, policies in _lists(review.new) if review.before is None else ():
        again = duplicates(cause for policy in policies for cause in policy.causes)
        if again:
            yield invalid(path, _ONCE + shown(again[0]))


def _once_says() -> str:
    times = "variables.causes[i].map(m, m.filter(f, f == e).size()).sum()"
    found = f"variables.causes[i].map(l, l.filter(e, {times} > 1)).filter(l, l.size() > 0)"
    path = "variables.policies[i].path"
    sentence = cel.text(path, cel.quoted(f": {_ONCE}"), cel.shown(f"{found}[0][0]"))
    each = cel.when(f"size({found}) > 0", sentence)
    return _created_alone(cel.first(f"{cel.places('variables.policies')}.map(i, {each})"))


def _alone(review: Review) -> Iterator[Refusal]:
    for path, policies in _lists(review.new) if review.before is None else ():
        events = {event for policy in policies for event in policy.events}
        if ANY in events and len(events) > 1:
            yield invalid(path, _ALONE)


def _alone_says() -> str:
    any_event, other = (f"o.items.exists(p, p.events.exists(e, e {sign} {cel.quoted(ANY)}))" for sign in ("==", "!="))
    sentence = cel.text("o.path", cel.quoted(f": {_ALONE}"))
    return _created_alone(cel.first(f"variables.policies.map(o, {cel.when(f'{any_event} && {other}', sentence)})"))
