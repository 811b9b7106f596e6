"""The other process of ``viewers``: an API server that says who asks and what they may, and all who look at the page.

It speaks JSON lines with its parent: ``{"server": URL}`` out, ``{"port", "authority"}`` in, ``{"ready": N}`` out once
each viewer has all snapshots; after a ``{"end": true}`` what they were sent since then.
"""

import asyncio
import json
import ssl
import sys
import zlib
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

import aiohttp

from kube.testing import FakeApiServer

SERVED_AS = "tessera-controller.tessera-system.svc"
_LINE = 1 << 20


@dataclass
class Seen:
    """By one viewer. ``marks``: times at which something came; ``first``: of which one did, or the stream ended."""

    sent: int = 0
    marks: int = 0
    ended: bool = False
    first: asyncio.Event = field(default_factory=asyncio.Event)


def team_of(user: str) -> str:
    """The namespace that a viewer may see; empty for one who may see all. Users are ``N-TEAM``."""
    return user.partition("-")[2]


async def watching(viewers: int, teams: int) -> None:
    """``teams`` 0: all viewers see everything. Else each sees one of so many namespaces."""
    loop = asyncio.get_running_loop()
    lines = asyncio.StreamReader(limit=_LINE)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    users = [f"{number}-" + (f"team-{number % teams}" if teams else "") for number in range(viewers)]
    async with FakeApiServer() as api:
        api.users |= {f"token-{user}": {"username": user, "groups": ["people"]} for user in users}
        api.allows = allows
        _say({"server": api.config.server})
        server = json.loads(await lines.readline())
        tls = ssl.create_default_context(cadata=server["authority"])
        seen = [Seen() for _ in users]
        connector = aiohttp.TCPConnector(ssl=tls, limit=0)
        async with aiohttp.ClientSession(connector=connector, auto_decompress=False) as browser:
            tasks = []
            for user, one in zip(users, seen, strict=True):
                tasks.append(asyncio.create_task(_look(browser, server["port"], user, one)))
                # People do not come all in one moment, and the API server is asked about each.
                await asyncio.sleep(0.05)
            await asyncio.gather(*(one.first.wait() for one in seen))
            before = [(one.sent, one.marks) for one in seen]
            _say({"ready": sum(not one.ended for one in seen), "sent": sum(one.sent for one in seen)})
            await lines.readline()
            sent = sum(one.sent - was for one, (was, _) in zip(seen, before, strict=True))
            marks = sorted(one.marks - was for one, (_, was) in zip(seen, before, strict=True))
            _say({"sent": sent, "marks": marks[len(marks) // 2], "ended": sum(one.ended for one in seen)})
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


def allows(spec: dict[str, Any]) -> bool:
    asked, team = spec.get("resourceAttributes", {}), team_of(spec.get("user", ""))
    return not team or asked.get("resource") != "workloads" or asked.get("namespace", "") == team


async def _look(browser: aiohttp.ClientSession, port: int, user: str, seen: Seen) -> None:
    """As the page does: who is refused for now comes again."""
    headers = {"Authorization": f"Bearer token-{user}", "Accept-Encoding": "gzip"}
    opened = zlib.decompressobj(31)
    refused = True
    with suppress(aiohttp.ClientError, TimeoutError):
        while refused:
            async with browser.get(
                f"https://127.0.0.1:{port}/page/events",
                headers=headers,
                server_hostname=SERVED_AS,
                timeout=aiohttp.ClientTimeout(total=None),
            ) as answer:
                if refused := answer.status == HTTPStatus.TOO_MANY_REQUESTS:
                    await asyncio.sleep(float(answer.headers["Retry-After"]))
                    continue
                answer.raise_for_status()
                async for raw in answer.content.iter_any():
                    seen.sent += len(raw)
                    seen.marks += opened.decompress(raw).count(b"event: mark\n")
                    if seen.marks:
                        seen.first.set()
    seen.ended = True
    seen.first.set()


def _say(told: dict[str, Any]) -> None:
    print(json.dumps(told), flush=True)


if __name__ == "__main__":
    asyncio.run(watching(int(sys.argv[1]), int(sys.argv[2])))
