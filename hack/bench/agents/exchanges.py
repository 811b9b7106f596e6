"""Requests and their bytes, from the bytes of connections: HTTP/1.1 as one agent speaks it. Pure."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

_LENGTH: Final = re.compile(rb"\r\ncontent-length: *(\d+)\r\n", re.IGNORECASE)
_END: Final = b"\r\n\r\n"


@dataclass
class Exchange:
    """One request and what came back. ``raw`` is the request as it went to the server, with its body.

    ``passed`` are (time in seconds, bytes sent, bytes received): of a watch they go on.
    """

    begun_s: float
    raw: bytes
    passed: list[tuple[float, int, int]] = field(default_factory=list)

    @property
    def line(self) -> str:
        return self.raw.partition(b"\r\n")[0].decode(errors="replace")

    @property
    def watches(self) -> bool:
        return "watch=true" in self.line

    @property
    def kind(self) -> str:
        """What it is, without the names in it: ``GET nodes``, ``WATCH pods``."""
        method, _, rest = self.line.partition(" ")
        path = rest.partition(" ")[0].partition("?")[0].strip("/").split("/")
        words = path[2:] if path[0] == "api" else path[3:]
        if words[:1] == ["namespaces"] and len(words) > 2:  # noqa: PLR2004 - a namespace, its name, what is in it
            words = words[2:]
        named = len(words) > 1
        verb = "WATCH" if self.watches else "LIST" if method == "GET" and not named else method
        return f"{verb} {words[0] if words else '/'.join(path)}"

    def bytes_between(self, begun_s: float, ended_s: float) -> tuple[int, int]:
        """Sent and received in that time."""
        within = [(up, down) for at_s, up, down in self.passed if begun_s <= at_s < ended_s]
        return sum(up for up, _ in within), sum(down for _, down in within)


class Connection:
    """One connection. No request begins before the answer to the last one has ended (HTTP without pipelining).

    ``_left`` are bytes of the present request's body that have not come; ``_head`` is the beginning of a request whose
    head has not ended.
    """

    def __init__(self, into: list[Exchange]) -> None:
        self._into = into
        self._head = b""
        self._left = 0
        self._now: Exchange | None = None

    def up(self, data: bytes, now_s: float) -> None:
        """Bytes to the server. Raises ValueError where a request tells no length of a body that it must have."""
        while data:
            if self._left:
                data = self._body(data, now_s)
                continue
            self._head += data
            head, end, data = self._head.partition(_END)
            if not end:
                return
            self._head = b""
            self._begin(head + end, now_s)

    def _begin(self, head: bytes, now_s: float) -> None:
        if b"\r\ntransfer-encoding:" in head.lower():
            raise ValueError("a request without a length")
        found = _LENGTH.search(head)
        self._left = int(found[1]) if found else 0
        self._now = Exchange(now_s, head, [(now_s, len(head), 0)])
        self._into.append(self._now)

    def _body(self, data: bytes, now_s: float) -> bytes:
        assert self._now is not None, "a body follows a head"
        part, rest = data[: self._left], data[self._left :]
        self._left -= len(part)
        self._now.raw += part
        self._now.passed.append((now_s, len(part), 0))
        return rest

    def down(self, data: bytes, now_s: float) -> None:
        """Bytes from the server."""
        if self._now is not None:
            self._now.passed.append((now_s, 0, len(data)))


@dataclass(frozen=True)
class Span:
    """What one agent asked in a time of ``seconds``: requests by kind, and bytes of all, watches included.

    ``bytes_of`` are the bytes received by kind.
    """

    seconds: float
    kinds: Counter[str]
    bytes_of: Counter[str]
    sent: int
    received: int

    @property
    def requests(self) -> int:
        return self.kinds.total()


def span(exchanges: Sequence[Exchange], begun_s: float, ended_s: float) -> Span:
    """Of that time; a watch that began before counts with its bytes alone."""
    passed = [each.bytes_between(begun_s, ended_s) for each in exchanges]
    kinds = Counter(each.kind for each in exchanges if begun_s <= each.begun_s < ended_s)
    bytes_of = Counter[str]()
    for each, (_, down) in zip(exchanges, passed, strict=True):
        bytes_of[each.kind] += down
    return Span(ended_s - begun_s, kinds, bytes_of, sum(up for up, _ in passed), sum(down for _, down in passed))
