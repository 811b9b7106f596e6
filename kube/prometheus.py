"""Prometheus' HTTP API: instant queries and range queries over aiohttp.

Answers are untrusted until they are decoded here.
"""

import asyncio
import base64
import os
import re
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar
from urllib.parse import unquote, urlsplit, urlunsplit

import msgspec

from kube.client import describe

if TYPE_CHECKING:  # loaded with the first query
    import aiohttp

_CHUNK: Final = 1 << 16
_OK: Final = 200
_NOT_LET_IN: Final = (401, 403)
_MOST_BYTES: Final = 64 * 1024 * 1024
"""The most bytes of one answer: some 300,000 series."""
_SHOWN: Final = 300
_MOST_OF_TOKEN: Final = 64 * 1024
_TOKEN: Final = re.compile(rb"[A-Za-z0-9._~+/-]+=*")

Labels = Mapping[str, str]
Vector = list[tuple[Labels, float]]
Matrix = list[tuple[Labels, list[tuple[float, float]]]]
"""The samples of each series: seconds since 1970, and the value then."""
D = TypeVar("D")


class Span(NamedTuple):
    """The times of a range query, in seconds since 1970: both ends are in it."""

    start_s: int
    end_s: int
    step_s: int


class PrometheusError(Exception):
    """Prometheus did not answer; one line with the address, without user and password."""


class UntrustedError(PrometheusError):
    """The server's certificate is not of a trusted authority."""


class NotLetInError(PrometheusError):
    """The server wants other credentials."""


class FileError(PrometheusError):
    """The file with the token or the authorities cannot be used; one line with the path, without the content."""


def token_in(path: Path) -> str:
    """A bearer token (RFC 6750) from a file. Raises FileError."""
    try:
        with path.open("rb") as file:
            token = file.read(_MOST_OF_TOKEN).strip()
    except OSError as failed:
        raise FileError(f"{path}: {_reason(failed)}, expected a readable file") from None
    if _TOKEN.fullmatch(token) is None:
        raise FileError(f"{path}: found no bearer token, expected one alone")
    return token.decode()


def authorities_in(path: Path) -> ssl.SSLContext:
    """Certificates of authorities that a server's may come from, in PEM form, from a file. Raises FileError."""
    try:
        return ssl.create_default_context(cafile=path)
    except ssl.SSLError:
        raise FileError(f"{path}: found no certificate, expected some in PEM form") from None
    except OSError as failed:
        raise FileError(f"{path}: {_reason(failed)}, expected a readable file") from None


def _reason(failed: OSError) -> str:
    return os.strerror(failed.errno).lower() if failed.errno else type(failed).__name__


class _Series(msgspec.Struct):
    metric: dict[str, str]
    value: tuple[float, str]


class _Data(msgspec.Struct):
    result: list[_Series]


class _Line(msgspec.Struct):
    metric: dict[str, str]
    values: list[tuple[float, str]]


class _Lines(msgspec.Struct):
    result: list[_Line]


class _Answer(msgspec.Struct):
    status: str = ""
    error: str = ""
    data: msgspec.Raw = msgspec.Raw(b"null")


# Decoders are made here: msgspec 0.22 crashes when two threads decode a type for the first time.
_ANSWER: Final = msgspec.json.Decoder(_Answer)
_VECTOR: Final = msgspec.json.Decoder(_Data)
_MATRIX: Final = msgspec.json.Decoder(_Lines)


class Prometheus:
    """A client of the Prometheus at ``url``, which may hold a user and a password. ``tls`` None: the system's
    authorities.
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        tls: ssl.SSLContext | None = None,
        *,
        timeout_s: float,
        most_bytes: int | None = None,
    ) -> None:
        parts = urlsplit(url.rstrip("/"))
        self.url = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
        self._tls = tls
        self._timeout_s = timeout_s
        self._most_bytes = most_bytes or _MOST_BYTES
        self._headers = {}
        if token:
            self._headers = {"Authorization": f"Bearer {token}"}
        elif parts.username is not None:
            pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            self._headers = {"Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}

    async def ask(self, queries: Mapping[str, str]) -> dict[str, Vector]:
        """The instant vectors of the queries, by their names. Queries are sent one after the other: each is work enough
        for Prometheus. Raises PrometheusError.
        """
        async with self._session() as session:
            return {name: await self._instant(session, query) for name, query in queries.items()}

    async def over(self, queries: Mapping[str, str], span: Span) -> dict[str, Matrix]:
        """The matrices of the queries over ``span``, by their names. Raises PrometheusError."""
        async with self._session() as session:
            return {name: await self._range(session, query, span) for name, query in queries.items()}

    def _session(self) -> "aiohttp.ClientSession":
        from kube.leanaiohttp import aiohttp

        if self._tls is None and self.url.startswith("https://"):
            self._tls = ssl.create_default_context()
        timeout = aiohttp.ClientTimeout(total=self._timeout_s)
        connector = aiohttp.TCPConnector(ssl=self._tls or True)
        return aiohttp.ClientSession(headers=self._headers, timeout=timeout, connector=connector)

    async def _instant(self, session: "aiohttp.ClientSession", query: str) -> Vector:
        status, raw = await self._answer(session, "query", {"query": query})
        return await asyncio.to_thread(self._vector, status, raw)

    async def _range(self, session: "aiohttp.ClientSession", query: str, span: Span) -> Matrix:
        form = {"query": query, "start": str(span.start_s), "end": str(span.end_s), "step": str(span.step_s)}
        status, raw = await self._answer(session, "query_range", form)
        return await asyncio.to_thread(self._matrix, status, raw)

    async def _answer(self, session: "aiohttp.ClientSession", way: str, form: Mapping[str, str]) -> tuple[int, bytes]:
        import aiohttp

        try:
            async with session.post(f"{self.url}/api/v1/{way}", data=form, allow_redirects=False) as answer:
                status, raw = answer.status, await read_most(answer.content, self._most_bytes)
        except aiohttp.ClientConnectorCertificateError as failed:
            raise UntrustedError(f"{self.url}: found another certificate: {failed.certificate_error}") from None
        except (aiohttp.ClientError, TimeoutError, ValueError) as failed:
            why = "no answer in time" if isinstance(failed, TimeoutError) else describe(failed)
            raise PrometheusError(f"{self.url}: cannot be reached: {why}") from None
        if status in _NOT_LET_IN:
            raise NotLetInError(f"{self.url}: answered {status}")
        if raw is None:
            raise PrometheusError(
                f"{self.url}: found an answer of more than {self._most_bytes} bytes, expected fewer series"
            )
        return status, raw

    def _vector(self, status: int, raw: bytes) -> Vector:
        found = self._decoded(status, raw, _VECTOR, "an instant vector")
        try:
            return [(series.metric, float(series.value[1])) for series in found.result]
        except ValueError:
            raise self._another("an instant vector") from None

    def _matrix(self, status: int, raw: bytes) -> Matrix:
        found = self._decoded(status, raw, _MATRIX, "a range of vectors")
        try:
            return [(line.metric, [(at_s, float(value)) for at_s, value in line.values]) for line in found.result]
        except ValueError:
            raise self._another("a range of vectors") from None

    def _decoded(self, status: int, raw: bytes, kind: "msgspec.json.Decoder[D]", expected: str) -> D:
        try:
            body = _ANSWER.decode(raw)
        except msgspec.ValidationError:
            body = _Answer()
        except (ValueError, RecursionError):
            said = f"answered {status}: " if status != _OK else ""
            raise PrometheusError(f"{self.url}: {said}found no JSON, expected Prometheus' HTTP API") from None
        if status != _OK or body.status != "success":
            error = " ".join(body.error[:_SHOWN].split()) or "not what Prometheus says"
            raise PrometheusError(f"{self.url}: answered {status}: {error}")
        try:
            return kind.decode(body.data)
        except (ValueError, RecursionError):
            raise self._another(expected) from None

    def _another(self, expected: str) -> PrometheusError:
        return PrometheusError(f"{self.url}: found another answer, expected {expected}")


async def read_most(stream: "aiohttp.StreamReader", most_bytes: int) -> bytes | None:
    """The whole of the stream; None for more than ``most_bytes``, which is not read to its end."""
    body = bytearray()
    async for chunk in stream.iter_chunked(_CHUNK):
        body += chunk
        if len(body) > most_bytes:
            return None
    return bytes(body)
