"""Kubernetes' authorizer in CEL: what is asked, step by step, and the answer by the rights that a test gives.

``authorizer`` is a map. Its ``rights`` are what the user may do: ``VERB GROUP/RESOURCE/SUBRESOURCE NAMESPACE``. The
runtime passes no types of ours on, so each step adds to a copy of that map.
"""

from typing import Any, Final

from cel_expr_python import cel

_STEPS: Final = ("group", "resource", "subresource", "namespace", "check")


def _step(name: str) -> Any:
    def taken(given: dict[str, Any], value: str) -> dict[str, Any]:
        return {**given, name: value}

    overload = cel.Overload(
        f"authorizer_{name}",
        return_type=cel.Type.MAP,
        parameters=[cel.Type.MAP, cel.Type.STRING],
        is_member=True,
        impl=taken,
    )
    return cel.FunctionDecl(name, [overload])


def _allowed(given: dict[str, Any]) -> bool:
    what = f"{given['group']}/{given['resource']}/{given.get('subresource', '')}"
    return f"{given['check']} {what} {given['namespace']}" in given["rights"]


def _answer() -> Any:
    overload = cel.Overload(
        "authorizer_allowed", return_type=cel.Type.BOOL, parameters=[cel.Type.MAP], is_member=True, impl=_allowed
    )
    return cel.FunctionDecl("allowed", [overload])


AUTHORIZER: Final = (*(_step(name) for name in _STEPS), _answer())
