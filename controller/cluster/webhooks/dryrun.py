"""The webhook for dry runs: it answers an AdmissionReview with warnings. It refuses nothing, changes nothing, and says
nothing about what cannot be read. Pure.
"""

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import msgspec

from controller.cluster.webhooks.review import REVIEW

PATH: Final = "/forecast"
_LONGEST: Final = 240
"""Characters of one warning: API servers cut those that are longer than 256."""
_MOST: Final = 4
_LARGEST: Final = 512 * 1024
"""The most bytes of a review that is read: a larger one would take the event loop's time. Its answer has no uid, which
the API server treats as no answer."""


class DryRun(NamedTuple):
    """A dry run. ``created``: the object that would be created; None for any other request."""

    uid: str
    created: Any
    namespace: str


class _Request(msgspec.Struct, rename="camel"):
    uid: str
    operation: str = ""
    namespace: str = ""
    dry_run: bool | None = None
    object: Any = None


class _Review(msgspec.Struct):
    request: _Request


def read(body: bytes) -> DryRun:
    """The dry run in a review. ``created`` is None unless the request creates an object in a dry run."""
    if len(body) > _LARGEST:
        return DryRun("", None, "")
    try:
        request = msgspec.json.decode(body, type=_Review).request
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return DryRun("", None, "")
    is_asked = request.operation == "CREATE" and request.dry_run is True and bool(request.namespace)
    return DryRun(request.uid, request.object if is_asked else None, request.namespace)


def allowed(uid: str, warnings: Iterable[str] = ()) -> bytes:
    """The review that allows the request, with warnings."""
    told = [_cut(warning) for warning in warnings][:_MOST]
    response: dict[str, Any] = {"uid": uid, "allowed": True}
    if told:
        response["warnings"] = told
    return msgspec.json.encode({"apiVersion": REVIEW, "kind": "AdmissionReview", "response": response})


def warnings_of(found: dict[str, Any]) -> list[str]:
    """The warnings of a forecast (``controller.cluster.process.submissions``)."""
    queue = f"ClusterQueue {found['clusterQueue']}" if found["clusterQueue"] else f"LocalQueue {found['localQueue']}"
    if found["startsNow"]:
        return [f"would start at once, in {queue}"]
    warnings = [f"would wait in {queue}: {found['sentence']}" if found["sentence"] else f"would wait in {queue}"]
    forecast = found["forecast"]
    if forecast is not None:
        waits_for = forecast["ahead"] > 1 and forecast.get("never") is None
        behind = f", behind {forecast['ahead']} others" if waits_for else ""
        warnings.append(f"likely start: {forecast['starts']}{behind}")
        warnings += [_would(change["sentence"]) for change in forecast["changes"][:2]]
    return warnings


def not_known(why: str) -> str:
    return f"what would become of it is not known: {why}"


def _would(sentence: str) -> str:
    """A sentence about a change: ``would start now: with 4 of the 6 pods of main``."""
    return f"would start now: {sentence[:1].lower()}{sentence[1:]}"


def _cut(warning: str) -> str:
    flat = " ".join(warning.split())
    return flat if len(flat) <= _LONGEST else f"{flat[: _LONGEST - 3]}..."
