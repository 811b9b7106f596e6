"""Answers to an AdmissionReview: what every mutating webhook here has in common. Pure."""

from base64 import b64encode
from collections.abc import Callable
from typing import Any, Final

import msgspec

from controller.objects.conversion.tree import ConversionError, Json, child, kind_of, text

REVIEW: Final = "admission.k8s.io/v1"

_MAX_MESSAGE: Final = 500


Patch = Callable[[Json, str], list[Json]]
"""Returns the JSON patch (RFC 6902) for an object of a namespace. May raise ConversionError."""


def answered(body: bytes, created: Patch, changed: Patch | None = None) -> bytes:
    """The review of the same uid: allowed, with the patch of ``created`` for a new object and of ``changed`` for an
    updated one.

    If they raise ConversionError, and for a body that is no review, the answer is a refusal.
    """
    uid = ""
    try:
        request = request_of(body)
        uid = text(request, "uid", ".request")
        made, namespace = child(request, "object", ".request"), text(request, "namespace", ".request")
        patch = {"CREATE": created, "UPDATE": changed}.get(str(request.get("operation")))
        operations = [] if made is None or patch is None else patch(made, namespace)
        response: Json = {"uid": uid, "allowed": True}
        if operations:
            encoded = b64encode(msgspec.json.encode(operations)).decode()
            response |= {"patchType": "JSONPatch", "patch": encoded}
    except (ConversionError, RecursionError) as error:
        message = str(error)[:_MAX_MESSAGE] if isinstance(error, ConversionError) else "nested too deeply"
        response = {"uid": uid, "allowed": False, "status": {"code": 400, "message": message}}
    return msgspec.json.encode({"apiVersion": REVIEW, "kind": "AdmissionReview", "response": response})


def escaped(key: str) -> str:
    """A step of a JSON pointer (RFC 6901)."""
    return key.replace("~", "~0").replace("/", "~1")


def request_of(body: bytes) -> Json:
    """The request in a review. Raises ConversionError for a body that is no review."""
    try:
        review: Any = msgspec.json.decode(body)
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise ConversionError(f"the review is no JSON: {error}") from None
    if not isinstance(review, dict):
        raise ConversionError(f"review: found {kind_of(review)}, expected object")
    if review.get("apiVersion") != REVIEW or review.get("kind") != "AdmissionReview":
        raise ConversionError(f"expected an AdmissionReview of {REVIEW}")
    request = child(review, "request", "")
    if request is None:
        raise ConversionError(".request: expected object")
    return request
