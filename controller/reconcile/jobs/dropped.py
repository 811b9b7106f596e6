"""Finds fields that an API server left out of a patch: it prunes fields that a CRD does not know, without an error."""

from typing import Any, Final

from controller.jobs.framework.raw import Json

_SAYS_NOTHING: Final[tuple[Any, ...]] = (None, False, {}, [])
"""Values that may be left out, because they mean the same as absence."""


def dropped(stored: Json, patch: Json) -> str:
    """The first field that the merge patch sets and the stored object lacks; empty if it has all.

    A different value was changed by an admission webhook, on purpose: it counts as stored, except for true and false (a
    job that is suspended again). A list must have each entry of the patch's list somewhere: a webhook may add more.
    """
    return _missing(stored, {key: value for key, value in patch.items() if key != "metadata"}, "") or ""


def _missing(stored: Any, wanted: Any, path: str) -> str | None:
    if isinstance(wanted, dict) and isinstance(stored, dict):
        for key, value in wanted.items():
            if value in _SAYS_NOTHING and not stored.get(key):
                continue
            where = f"{path}.{key}" if path else key
            found = _missing(stored[key], value, where) if key in stored else where
            if found is not None:
                return found
        return None
    if isinstance(wanted, list) and isinstance(stored, list):
        for index, value in enumerate(wanted):
            gaps = [_missing(item, value, f"{path}[{index}]") for item in _likely(stored, index)]
            if None not in gaps:
                return next((gap for gap in gaps if gap), f"{path}[{index}]")
        return None
    lost = stored is not wanted if isinstance(wanted, bool) else isinstance(wanted, dict | list)
    return path if lost else None


def _likely(stored: list[Any], index: int) -> list[Any]:
    """The entries with the one at the same index first: its missing field is the one to report."""
    return [*stored[index : index + 1], *stored[:index], *stored[index + 1 :]]
