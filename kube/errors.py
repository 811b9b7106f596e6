"""The errors of API calls, split by what the caller must do.

KubeError
├── UnavailableError   try again later (connection, timeout, 429, 5xx)
│   └── StartingError  429 of an API server that sets up the storage of a kind: try again when it says
├── ConflictError      409: read again, then decide
├── NotFoundError      404: the object, or its kind, is not there
├── ExpiredError       410: list again, the watch's place is gone
├── ForbiddenError     401, 403: an administrator must act; trying again soon is pointless
└── InvalidError       400, 405, 413, 415, 422: this request can never succeed

ConfigError            the kubeconfig or the service-account mount is unusable: say so and stop
"""

import contextlib

import msgspec

from kube import depth

_MAX_TEXT = 256
"""The most characters kept of an error body that is not a Status object: a proxy's HTML page must not fill a log."""
_LONGEST_PAUSE_S = 600.0
"""The longest pause in seconds that is kept: a server that asks for more is asked again all the same."""


class ConfigError(Exception):
    """A configuration error, in one line that names the file, the field, what was found and what was expected. Line
    breaks in these become blanks.
    """

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.splitlines()))


class KubeError(Exception):
    """Base of all API failures. ``status`` is None where no answer came; ``reason`` is the Status object's or empty."""

    def __init__(self, message: str, *, status: int | None = None, reason: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason


class UnavailableError(KubeError):
    """The call may succeed later, and not before ``retry_after_s`` where the server asked for a pause."""

    def __init__(
        self, message: str, *, status: int | None = None, reason: str = "", retry_after_s: float | None = None
    ) -> None:
        super().__init__(message, status=status, reason=reason)
        self.retry_after_s = retry_after_s


class StartingError(UnavailableError):
    """The server has just started and has not read the kind's objects from its store yet. This is not a failure: the
    call is repeated when the server says, and pauses do not grow.
    """


class ConflictError(KubeError):
    """Another client wrote first, a precondition (the uid) failed, or (reason AlreadyExists) the name is taken."""


class NotFoundError(KubeError):
    """No such object, or no such kind: a CRD that is not installed answers the same."""


class ExpiredError(KubeError):
    """The resource version is too old to watch from."""


class ForbiddenError(KubeError):
    """The credentials are refused (401), or may not do this (403)."""


class InvalidError(KubeError):
    """The server refuses the request for good."""


class _Status(msgspec.Struct):
    message: str = ""
    reason: str = ""
    code: int = 0


_STARTING = "storage is (re)initializing"
"""The answer of an API server's watch cache before its first list of the store. With ``: why`` behind it, that list has
failed (apiserver, pkg/storage/cacher/ready.go).
"""

_KINDS: dict[int, type[KubeError]] = {
    401: ForbiddenError,
    403: ForbiddenError,
    404: NotFoundError,
    409: ConflictError,
    410: ExpiredError,
}


def from_response(what: str, status: int, body: bytes, retry_after: str | None = None) -> KubeError:
    """The error for an answer of ``status`` (400 or more). ``what`` names the call, e.g. ``PATCH /api/v1/nodes/a``."""
    message, reason = _text(body)
    text = f"{what}: {status} {message}".rstrip()
    if status == 429 or status >= 500:  # noqa: PLR2004 - HTTP's own numbers
        kind = StartingError if status == 429 and message == _STARTING else UnavailableError  # noqa: PLR2004
        return kind(text, status=status, reason=reason, retry_after_s=_seconds(retry_after))
    return _KINDS.get(status, InvalidError)(text, status=status, reason=reason)


def from_status(what: str, raw: bytes) -> KubeError:
    """The error inside a watch's ERROR event, whose object is a Status."""
    code = 500
    with contextlib.suppress(msgspec.MsgspecError):
        code = depth.decode(raw, _Status).code or 500
    return from_response(what, code, raw)


def _text(body: bytes) -> tuple[str, str]:
    try:
        status = depth.decode(body, _Status)
    except msgspec.MsgspecError:
        return _line(body[:_MAX_TEXT].decode("utf-8", "replace")), ""
    return _line(status.message[: 4 * _MAX_TEXT]), status.reason


def _line(text: str) -> str:
    """The text without line breaks: it ends in a log, or in an Event."""
    return " ".join(text.split())


def _seconds(value: str | None) -> float | None:
    """Retry-After in seconds; its date form is not used by the API server and reads as None."""
    text = (value or "").strip()
    if not (text.isascii() and text.isdigit()):
        return None
    return min(float(text), _LONGEST_PAUSE_S)
