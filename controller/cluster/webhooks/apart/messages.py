"""The messages between the deciding process and the one that serves webhooks. Pure: structs to frames and back.

A frame is four bytes of length, then msgpack. The first message is the setup; from then on each side sends messages in
any order.
"""

import struct
from typing import Final

import msgspec

HEADER: Final = struct.Struct(">I")
MOST_BYTES: Final = 64 * 1024 * 1024
"""The most bytes of a frame to the process that serves: the namespaces of a large cluster are a few MiB."""
MOST_ASKED_BYTES: Final = 1024 * 1024
"""The most bytes of a frame to the process that decides: requests of strangers are in it."""


class FrameError(ValueError):
    """Bytes that the other side cannot have meant: one line."""


class Setup(msgspec.Struct, frozen=True, tag=True):
    """The first message. ``config``: a ControllerConfig, pickled. ``log_level``: a number of ``logging``."""

    config: bytes
    log_level: int


class Known(msgspec.Struct, frozen=True, tag=True):
    """What the answers depend on beside the configuration. ``default_queues``: namespaces that have a LocalQueue
    ``default``. ``suspend_paths``: API group, kind, and the path of the field that suspends its objects.
    """

    default_queues: frozenset[str] = frozenset()
    suspend_paths: tuple[tuple[str, str, tuple[str, ...]], ...] = ()


class Certificate(msgspec.Struct, frozen=True, tag=True):
    """The certificate to present from now on, in PEM. Its repr shows no key."""

    certificate: bytes
    key: bytes

    def __repr__(self) -> str:
        return "Certificate(...)"


class AnswerOf(msgspec.Struct, frozen=True, tag=True):
    """The answer to the ``Asked`` of this number. ``answer`` None: none is known."""

    number: int
    answer: bytes | None


class Ping(msgspec.Struct, frozen=True, tag=True):
    """A sign of life that is answered with ``Pong``."""


class Serving(msgspec.Struct, frozen=True, tag=True):
    """Tells that the process listens on this port."""

    port: int


class Failed(msgspec.Struct, frozen=True, tag=True):
    """Tells that the process cannot listen: ``OSError(number, why)``."""

    number: int
    why: str


class Asked(msgspec.Struct, frozen=True, tag=True):
    """A question about what the deciding process knows. ``path``: of the webhook that was called."""

    number: int
    path: str
    question: bytes


class Pong(msgspec.Struct, frozen=True, tag=True):
    """The answer to a Ping."""


ToServe = Setup | Known | Certificate | AnswerOf | Ping
ToDecide = Serving | Failed | Asked | Pong
_TO_SERVE: Final[msgspec.msgpack.Decoder[ToServe]] = msgspec.msgpack.Decoder(ToServe)
_TO_DECIDE: Final[msgspec.msgpack.Decoder[ToDecide]] = msgspec.msgpack.Decoder(ToDecide)


def framed(message: ToServe | ToDecide) -> bytes:
    body = msgspec.msgpack.encode(message)
    return HEADER.pack(len(body)) + body


def length(header: bytes, most_bytes: int) -> int:
    """The length in a frame's header. Raises FrameError."""
    (found,) = HEADER.unpack(header)
    if found > most_bytes:
        raise FrameError(f"a frame of {found} bytes, expected at most {most_bytes}")
    return int(found)


def to_serve(body: bytes) -> ToServe:
    """A message to the process that serves. Raises FrameError."""
    try:
        return _TO_SERVE.decode(body)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise FrameError(str(error)) from None


def to_decide(body: bytes) -> ToDecide:
    """A message to the process that decides. Raises FrameError."""
    try:
        return _TO_DECIDE.decode(body)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise FrameError(str(error)) from None
