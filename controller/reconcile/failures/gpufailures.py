"""The actions that are taken on pods that hold a failed GPU. Pure: agents' reports, pods and time in, actions out.

A pod's policy is an Event alone, the eviction of the pod, or the requeueing of its workload. Two limits keep broken
hardware, or a broken agent, from emptying a cluster: a budget of actions in a window of time for the whole cluster, and
a cool-down for each workload. An action that they hold back is announced once, and taken when they allow it, if the pod
still holds the failed GPU by then. Failures within ten seconds of a workload's first one count as one.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec
from msgspec import Struct

from controller.cluster.config.settings import GpuFailureRules, OnGpuFailure
from controller.messages.spans import exact
from controller.scheduler.model.resources import WorkloadKey

TOGETHER_S: Final = 10.0
REFUSED_AGAIN_S: Final = 30.0
"""The time after which an eviction that a PodDisruptionBudget refused is asked for again; it is never forced."""
REFUSED_S: Final = 600.0
"""The time for which an eviction may be refused before people are told."""


class RecentActions(Struct, frozen=True, kw_only=True):
    """The actions that still count against the limits, in seconds since 1970: when they were taken, and for each gang
    when the last failure with an action began.
    """

    actions: tuple[float, ...] = ()
    paid: Mapping[str, float] = {}


class Victim(Struct, frozen=True, kw_only=True):
    """A pod that holds devices. ``workload`` None: it has no known Workload, and its gang is the pod itself."""

    uid: str
    policy: OnGpuFailure
    workload: WorkloadKey | None = None


class GpuFailureAction(Struct, frozen=True, kw_only=True):
    """One action. ``held_back``: why the action, of this ``kind``, is not taken yet; empty if it is."""

    kind: OnGpuFailure
    pod: str
    victim: Victim
    node: str
    device: str
    cause: str
    held_back: str = ""


class Case(Struct, frozen=True, order=True):
    """A pod, ``namespace/name``, that holds a failed device of the node."""

    node: str
    device: str
    pod: str


class _Step(Struct):
    """The progress of a case. ``acted``: an action was taken for it. ``held_back``: an action was announced as held
    back.
    """

    acted: bool = False
    held_back: bool = False


class _Refused(Struct):
    """A pod whose eviction is refused since ``since_s``, and is asked for again at ``again_s``."""

    since_s: float
    again_s: float
    is_said: bool = False


class GpuFailures:
    """``unknown`` names the pods to be read, ``set_pod`` takes what was found, ``due_actions`` decides.

    ``_cases`` and ``_steps`` have the same keys, and ``_of_node`` holds just these by node. ``_victims`` has pods of
    cases only, and so has ``_refused``: a pod without a case is forgotten. ``_actions`` is sorted, at most as long as
    the budget.
    """

    def __init__(self, rules: GpuFailureRules) -> None:
        self.rules = rules
        self._cases: dict[Case, str] = {}
        """Why the device of each case failed."""
        self._of_node: dict[str, set[Case]] = {}
        self._steps: dict[Case, _Step] = {}
        self._victims: dict[str, Victim | None] = {}
        self._refused: dict[str, _Refused] = {}
        self._actions: list[float] = []
        """The times at which actions were taken, within the window."""
        self._began: dict[str, float] = {}
        """The time at which the last failure with an action began, by gang."""
        self._due_s: float | None = None

    # -- events ------------------------------------------------------------------------------------------------------

    def set_node(self, node: str, failed: Mapping[str, str], holders: Sequence[tuple[str, str]]) -> None:
        """Notes a node's report in place of the earlier one. ``failed``: why, by device; ``holders``: device and
        pod.
        """
        new = {Case(node, device, pod): failed[device] for device, pod in holders if device in failed}
        for case in self._of_node.get(node, set()) - new.keys():
            self._close(case)
        for case, cause in new.items():
            self._cases[case] = cause
            self._steps.setdefault(case, _Step())
        if new:
            self._of_node[node] = set(new)
        else:
            self._of_node.pop(node, None)

    def remove_node(self, node: str) -> None:
        self.set_node(node, {}, ())

    def set_pod(self, pod: str, victim: Victim | None) -> None:
        """Notes the pod of a case. None: it is gone or over, although its node's agent still reports it."""
        if not any(case.pod == pod for case in self._cases):
            return
        old = self._victims.get(pod)
        if old is not None and victim is not None and old.uid != victim.uid:
            for case in self._cases_of(pod):
                self._steps[case] = _Step()
            self._refused.pop(pod, None)
        self._victims[pod] = victim

    def failed(self, action: GpuFailureAction) -> None:
        """Notes that the action could not be carried out: it is due again, and does not count."""
        gang = gang_of(action.pod, action.victim)
        for case in self._cases:
            victim = self._victims.get(case.pod)
            if victim is not None and victim.policy is not OnGpuFailure.NOTIFY and gang_of(case.pod, victim) == gang:
                self._steps[case].acted = False
        if self._actions:
            self._actions.pop()

    def refused(self, action: GpuFailureAction, now_s: float) -> bool:
        """Notes that an eviction was refused, by a PodDisruptionBudget as a rule: it is due again after a while, and
        does not count. Returns whether it has been refused for so long that people are to be told, which is True once.
        """
        self.failed(action)
        self._began.pop(gang_of(action.pod, action.victim), None)
        refusal = self._refused.setdefault(action.pod, _Refused(since_s=now_s, again_s=now_s))
        refusal.again_s = now_s + REFUSED_AGAIN_S
        self._due_s = refusal.again_s if self._due_s is None else min(self._due_s, refusal.again_s)
        tell = not refusal.is_said and now_s >= refusal.since_s + REFUSED_S
        refusal.is_said |= tell
        return tell

    def recall(self, recent: RecentActions, now_s: float) -> None:
        """Counts the previous leader's actions. Times after ``now_s``, by its clock, become ``now_s``."""
        done = sorted([*(min(at_s, now_s) for at_s in recent.actions), *self._actions])
        self._actions = done[max(0, len(done) - self.rules.budget) :]
        for gang, at_s in recent.paid.items():
            self._began.setdefault(gang, min(at_s, now_s))

    # -- questions ---------------------------------------------------------------------------------------------------

    def recent(self) -> RecentActions:
        return RecentActions(actions=tuple(self._actions), paid=dict(self._began))

    def unknown(self) -> list[str]:
        return sorted({case.pod for case in self._cases if case.pod not in self._victims})

    def due_actions(self, now_s: float) -> list[GpuFailureAction]:
        """The actions to take or to announce now, each once. Call again at ``next_due_s``."""
        self._due_s = None
        self._actions = [at_s for at_s in self._actions if at_s > now_s - self.rules.window_s]
        self._began = {
            gang: at_s for gang, at_s in self._began.items() if at_s > now_s - max(self.rules.cool_down_s, TOGETHER_S)
        }
        found = (self._act(case, now_s) for case in sorted(self._cases))
        return [action for action in found if action is not None]

    def next_due_s(self) -> float | None:
        """The time at which an action that is held back may be taken; None if there is none."""
        return self._due_s

    def validate(self) -> None:
        """Recomputes the indexes. Raises AssertionError, also if something is kept of cases that are over."""
        cases = {case for held in self._of_node.values() for case in held}
        assert cases == self._cases.keys() == self._steps.keys(), "the index of cases by node has drifted"
        assert all(case.node == node for node, held in self._of_node.items() for case in held), "a case of another node"
        assert self._victims.keys() <= {case.pod for case in cases}, "a pod is remembered that holds nothing failed"
        assert self._refused.keys() <= {case.pod for case in cases}, "a refusal is remembered of a pod without a case"
        assert len(self._actions) <= self.rules.budget, "more actions than the budget allows"

    # -- inside ------------------------------------------------------------------------------------------------------

    def _act(self, case: Case, now_s: float) -> GpuFailureAction | None:
        victim, step = self._victims.get(case.pod), self._steps[case]
        if victim is None or step.acted:
            return None
        action = GpuFailureAction(
            kind=victim.policy,
            pod=case.pod,
            victim=victim,
            node=case.node,
            device=case.device,
            cause=self._cases[case],
        )
        if victim.policy is OnGpuFailure.NOTIFY:
            step.acted = True
            return action
        refused = self._refused.get(case.pod)
        if refused is not None and now_s < refused.again_s:
            self._due_s = refused.again_s if self._due_s is None else min(self._due_s, refused.again_s)
            return None
        gang = gang_of(case.pod, victim)
        due_s = self._may_act_s(gang, now_s)
        if due_s is not None:
            self._due_s = due_s if self._due_s is None else min(self._due_s, due_s)
            if step.held_back:
                return None
            step.held_back = True
            return msgspec.structs.replace(action, held_back=self._why_not())
        self._actions.append(now_s)
        self._began.setdefault(gang, now_s)
        for other in self._settled_by(case, victim):
            self._steps[other].acted = True
        return action

    def _may_act_s(self, gang: str, now_s: float) -> float | None:
        """The earliest time at which an action for the gang may be taken; None: now."""
        began_s = self._began.get(gang)
        if began_s is not None and now_s > began_s + TOGETHER_S and now_s < began_s + self.rules.cool_down_s:
            return began_s + self.rules.cool_down_s
        if len(self._actions) < self.rules.budget:
            return None
        return (self._actions[0] if self._actions else now_s) + self.rules.window_s

    def _why_not(self) -> str:
        rules = self.rules
        if len(self._actions) >= rules.budget:
            return f"the budget of {rules.budget} in {exact(rules.window_s)} is spent"
        return f"another failure of the workload was acted on less than {exact(rules.cool_down_s)} ago"

    def _settled_by(self, case: Case, victim: Victim) -> Iterator[Case]:
        """The cases that one action settles: all of the pod's, or all of its gang's."""
        gang = gang_of(case.pod, victim)
        for other in self._cases:
            if other.pod == case.pod:
                yield other
            elif victim.policy is OnGpuFailure.REQUEUE_GANG:
                theirs = self._victims.get(other.pod)
                if (
                    theirs is not None
                    and theirs.policy is not OnGpuFailure.NOTIFY
                    and gang_of(other.pod, theirs) == gang
                ):
                    yield other

    def _cases_of(self, pod: str) -> list[Case]:
        return [case for case in self._cases if case.pod == pod]

    def _close(self, case: Case) -> None:
        del self._cases[case], self._steps[case]
        if not self._cases_of(case.pod):
            self._victims.pop(case.pod, None)
            self._refused.pop(case.pod, None)


def gang_of(pod: str, victim: Victim) -> str:
    """The gang that a pod is decided on with: all pods of its workload, or itself."""
    return f"pod {pod}" if victim.workload is None else f"workload {victim.workload}"
