"""Reads answers of other systems up to a bound."""

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:  # kept out of processes that ask nobody
    import aiohttp

_CHUNK: Final = 1 << 16


async def read_most(stream: "aiohttp.StreamReader", most_bytes: int) -> bytes | None:
    """The whole of the stream; None for more than ``most_bytes``, which is not read to its end."""
    found = bytearray()
    async for chunk in stream.iter_chunked(_CHUNK):
        found += chunk
        if len(found) > most_bytes:
            return None
    return bytes(found)
