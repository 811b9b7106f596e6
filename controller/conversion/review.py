"""The webhook's body: a ConversionReview (apiextensions.k8s.io/v1) in, its answer out. Bytes to bytes, never a crash.

One object that cannot be converted fails its whole request: the API server takes all or nothing.
"""

from typing import Any, Final

import msgspec

from controller.conversion.kinds import convert, expected_object
from controller.conversion.tree import ConversionError, Json, child, kind_of, text

REVIEW: Final = "apiextensions.k8s.io/v1"

_MAX_MESSAGE: Final = 1000


def answer(body: bytes) -> bytes:
    """The review of the same uid with the converted objects, or with the reason why there are none."""
    uid = ""
    try:
        request = _request(body)
        uid = text(request, "uid", ".request")
        wanted = text(request, "desiredAPIVersion", ".request")
        made = _converted(request.get("objects"), wanted)
        return _written({"uid": uid, "convertedObjects": made, "result": {"status": "Success"}})
    except (ConversionError, RecursionError) as error:
        message = str(error)[:_MAX_MESSAGE] if isinstance(error, ConversionError) else "nested too deeply"
        return _written({"uid": uid, "convertedObjects": [], "result": {"status": "Failed", "message": message}})


def _request(body: bytes) -> Json:
    try:
        review = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise ConversionError(f"the review is no JSON: {error}") from None
    review = expected_object(review, "review")
    if review.get("apiVersion") != REVIEW or review.get("kind") != "ConversionReview":
        raise ConversionError(f"expected a ConversionReview of {REVIEW}")
    request = child(review, "request", "")
    if request is None:
        raise ConversionError(".request: expected object")
    return request


def _converted(objects: Any, wanted: str) -> list[Json]:
    if not isinstance(objects, list):
        raise ConversionError(f".request.objects: found {kind_of(objects)}, expected array")
    made: list[Json] = []
    for index, given in enumerate(objects):
        path = f".request.objects[{index}]"
        try:
            made.append(convert(expected_object(given, path), wanted))
        except ConversionError as error:
            raise ConversionError(f"{_named(given, path)}: {error}") from None
    return made


def _named(given: Any, path: str) -> str:
    """Kind, namespace and name for the message; its index in the request where it has none."""
    metadata = given.get("metadata") if isinstance(given, dict) else None
    if not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str):
        return path
    space = metadata.get("namespace")
    return f"{given.get('kind')} {f'{space}/' if isinstance(space, str) else ''}{metadata['name']}"[: _MAX_MESSAGE // 2]


def _written(response: Json) -> bytes:
    return msgspec.json.encode({"apiVersion": REVIEW, "kind": "ConversionReview", "response": response})
