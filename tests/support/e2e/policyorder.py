"""MutatingAdmissionPolicies asked as an API server asks them, in an order of the caller's: theirs is that of a Go map.

As in k8s.io/apiserver, pkg/admission/plugin/policy/mutating/dispatcher.go (1.36): one round over all that match; then,
where any changed the object, a second over those that matched before another changed it. A policy whose match
conditions did not hold in the first round is not asked again.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache

from controller.jobs.framework.raw import Json
from tests.support.controller.celpolicies import evaluated, patched, rewritten


@dataclass(frozen=True)
class Policy:
    """``by_queue``: it acts where the namespace has the LocalQueue ``default``, and nowhere else."""

    name: str
    by_queue: bool
    conditions: tuple[str, ...]
    variables: tuple[tuple[str, str], ...]
    mutations: tuple[str, ...]

    def asked(self, given: Json) -> Json | None:
        """The object after it; None where the policy does not match."""
        user = {"object": given, "oldObject": None, "request": {"userInfo": {"username": "user", "groups": []}}}
        if not all(evaluated(condition, user) for condition in self.conditions):
            return None
        for mutation in self.mutations:
            variables: Json = {}
            known = user | {"object": given, "variables": variables}
            for name, expression in self.variables:
                variables[name] = evaluated(expression, known)
            given = patched(given, evaluated(rewritten(mutation), known))
        return given


@cache
def _asked(policy: Policy, given: str) -> str | None:
    made = policy.asked(json.loads(given))
    return None if made is None else json.dumps(made)


@dataclass
class Admission:
    """``policies`` in the order in which they are asked."""

    policies: Sequence[Policy]
    matched: set[str] = field(default_factory=set)
    again: set[str] = field(default_factory=set)

    def created(self, given: Json) -> Json:
        made = self._round(json.dumps(given), self.policies)
        again = [each for each in self.policies if each.name in self.again]
        found: Json = json.loads(self._round(made, again))
        return found

    def _round(self, given: str, policies: Iterable[Policy]) -> str:
        for policy in policies:
            made = _asked(policy, given)
            if made is None:
                continue
            if made != given:
                self.again |= self.matched
                self.matched.clear()
            self.matched.add(policy.name)
            given = made
        return given


def policies(rendered: Iterable[Json], group: str, plural: str, *, default_queue: bool) -> list[Policy]:
    """Those that a new object of this kind may be changed by; ``default_queue``: its namespace has one."""

    def is_about(spec: Json) -> bool:
        rules = spec["matchConstraints"]["resourceRules"]
        return any(
            group in rule["apiGroups"] and plural in rule["resources"] and "CREATE" in rule["operations"]
            for rule in rules
        )

    found = [
        Policy(
            each["metadata"]["name"],
            "paramKind" in each["spec"],
            tuple(one["expression"] for one in each["spec"].get("matchConditions", ())),
            tuple((one["name"], one["expression"]) for one in each["spec"].get("variables", ())),
            tuple(one["jsonPatch"]["expression"] for one in each["spec"]["mutations"]),
        )
        for each in rendered
        if each["kind"] == "MutatingAdmissionPolicy" and is_about(each["spec"])
    ]
    return [each for each in found if default_queue or not each.by_queue]
