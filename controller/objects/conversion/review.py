"""The webhook's bodies: a ConversionReview (apiextensions.k8s.io/v1) in, its answer out. Bytes to bytes, never a crash.

One object that cannot be converted fails its whole request: the API server takes all or nothing.
"""

from typing import Any, Final, Literal

import msgspec

from controller.objects.conversion.kinds import convert, expected_object
from controller.objects.conversion.tree import ConversionError, Json, child, kind_of, text

REVIEW: Final = "apiextensions.k8s.io/v1"

_MAX_MESSAGE: Final = 1000


class _Request(msgspec.Struct, rename={"wanted": "desiredAPIVersion"}):
    uid: str
    wanted: str
    objects: list[msgspec.Raw]


class _Review(msgspec.Struct, rename="camel"):
    """A review as the API server writes it. Its objects are decoded one by one: together they take ten times as much
    memory.
    """

    api_version: Literal["apiextensions.k8s.io/v1"]
    kind: Literal["ConversionReview"]
    request: _Request


# It is made here: msgspec 0.22 crashes when two threads decode a type for the first time, and reviews come in threads.
_DECODER: Final = msgspec.json.Decoder(_Review)


def answer(body: bytes) -> bytes:
    """The review of the same uid with the converted objects, or with the reason why there are none."""
    uid = ""
    try:
        try:
            review = _DECODER.decode(body).request
        except (msgspec.MsgspecError, UnicodeError):
            # The body is no review: the message below says what is wrong with it.
            request = _request(body)
            uid = text(request, "uid", ".request")
            wanted = text(request, "desiredAPIVersion", ".request")
            made = _converted(request.get("objects"), wanted)
        else:
            uid = review.uid
            made = _converted(review.objects, review.wanted)
        return _written({"uid": uid, "convertedObjects": made, "result": {"status": "Success"}})
    except (ConversionError, RecursionError) as error:
        message = str(error)[:_MAX_MESSAGE] if isinstance(error, ConversionError) else "nested too deeply"
        return _written({"uid": uid, "convertedObjects": [], "result": {"status": "Failed", "message": message}})


def _request(body: bytes) -> Json:
    review = expected_object(_decoded(body), "review")
    if review.get("apiVersion") != REVIEW or review.get("kind") != "ConversionReview":
        raise ConversionError(f"expected a ConversionReview of {REVIEW}")
    request = child(review, "request", "")
    if request is None:
        raise ConversionError(".request: expected object")
    return request


def _decoded(body: bytes | msgspec.Raw) -> Any:
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise ConversionError(f"the review is no JSON: {error}") from None


def _converted(objects: Any, wanted: str) -> list[msgspec.Raw]:
    if not isinstance(objects, list):
        raise ConversionError(f".request.objects: found {kind_of(objects)}, expected array")
    made: list[msgspec.Raw] = []
    for index, one in enumerate(objects):
        path = f".request.objects[{index}]"
        item = _decoded(one) if isinstance(one, msgspec.Raw) else one
        try:
            made.append(msgspec.Raw(msgspec.json.encode(convert(expected_object(item, path), wanted))))
        except ConversionError as error:
            raise ConversionError(f"{_named(item, path)}: {error}") from None
    return made


def _named(given: Any, path: str) -> str:
    """The object's kind, namespace and name for the message; its index in the request if it has none."""
    metadata = given.get("metadata") if isinstance(given, dict) else None
    if not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str):
        return path
    space = metadata.get("namespace")
    return f"{given.get('kind')} {f'{space}/' if isinstance(space, str) else ''}{metadata['name']}"[: _MAX_MESSAGE // 2]


def _written(response: dict[str, Any]) -> bytes:
    return msgspec.json.encode({"apiVersion": REVIEW, "kind": "ConversionReview", "response": response})
