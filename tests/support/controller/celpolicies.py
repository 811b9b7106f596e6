"""The chart's CEL without an API server: Google's own runtime of the language, as Kubernetes' is made by it in Go."""

import json
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, Final, Protocol

from cel_expr_python import cel
from cel_expr_python.ext import ext_optional, ext_strings

from controller.jobs.framework.raw import Json
from controller.scheduler.model.gates import DEFAULTS, FeatureGates
from tests.support.controller.celauthorizer import AUTHORIZER
from tests.support.controller.celquantities import FUNCTIONS

_ROOTS: Final = ("authorizer", "object", "oldObject", "oldSelf", "params", "request", "self", "variables")
_ENVIRONMENT: Final = cel.NewEnv(
    variables=dict.fromkeys(_ROOTS, cel.Type.DYN),
    extensions=[ext_strings.ExtStrings(), ext_optional.ExtOptional()],
    functions=[*FUNCTIONS, *AUTHORIZER],
)


class HasRules(Protocol):
    """A kind with its expressions by their names."""

    @property
    def variables(self) -> Mapping[str, str]: ...
    @property
    def says(self) -> Mapping[str, str]: ...
    @property
    def defaults(self) -> str: ...


@cache
def _compiled(expression: str) -> Any:
    return _ENVIRONMENT.compile(expression)


def evaluated(expression: str, given: dict[str, Any]) -> Any:
    """AssertionError where the expression fails: a policy would refuse the request with that."""
    found = _compiled(expression).eval(data=given)
    assert found.type() != cel.Type.ERROR, f"{expression}: {found.value()}"
    return found.plain_value()


def patches(ruled: HasRules, job: Json, gates: FeatureGates | None = None) -> list[dict[str, Any]]:
    """The operations that a kind's policy makes of a job that is created."""
    known = gates or FeatureGates()
    on = {name: known.on(name) for name in DEFAULTS}
    given: dict[str, Any] = {"object": job, "oldObject": None, "variables": {"gates": on}}
    for name, expression in ruled.variables.items():
        if name != "podSets":
            given["variables"][name] = evaluated(expression, given)
    return list(evaluated(rewritten(ruled.defaults), given))


def rewritten(patch: str) -> str:
    """An expression of operations with maps in place of the API server's own type."""
    written = patch.replace("JSONPatch{op: ", "{'op': ")
    return written.replace(", path: ", ", 'path': ").replace(", value: ", ", 'value': ")


def patched(given: Json, operations: Iterable[dict[str, Any]]) -> Json:
    """The object after the patch, as RFC 6902 has it: what is added to must be there."""
    made: Json = json.loads(json.dumps(given))  # no deep copy: what lies in two places would still be one object
    for operation in operations:
        *steps, last = (step.replace("~1", "/").replace("~0", "~") for step in operation["path"].split("/")[1:])
        at: Any = made
        for step in steps:
            at = at[int(step)] if isinstance(at, list) else at[step]
        if operation["op"] == "remove":
            del at[last]
            continue
        assert operation["op"] == "add", operation
        if isinstance(at, list):
            assert last == "-", operation
            at.append(operation["value"])
        else:
            at[last] = operation["value"]
    return made


def said(ruled: HasRules, job: Json, before: Json | None = None, gates: FeatureGates | None = None) -> str:
    """The first sentence of a kind's policy about a job; empty where it is let in."""
    known = gates or FeatureGates()
    variables: dict[str, Any] = {"gates": {name: known.on(name) for name in DEFAULTS}}
    given = {"object": job, "oldObject": before, "variables": variables}
    for name, expression in ruled.variables.items():
        variables[name] = evaluated(expression, given)
    return next((found for each in ruled.says.values() if (found := str(evaluated(each, given)))), "")
