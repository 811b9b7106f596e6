"""Objects that nest deeper than the decoder can follow: each is read as far as anybody reads, and hides no other."""

import asyncio
import json
import random

import msgspec
import pytest
from aiohttp import web
from hypothesis import given, settings
from hypothesis import strategies as st

from kube.client import Client
from kube.clock import Backoff, SystemClock
from kube.config import ClusterConfig
from kube.depth import MOST, cut, decode
from kube.errors import from_response, from_status
from kube.objects import Metadata
from kube.reading.reflector import Added, Change, Reflector
from kube.resources import NODES
from kube.testing import eventually

TOO_DEEP = 10_000


def deep(levels: int, inside: str = "1") -> str:
    """Arrays and objects by turns."""
    opening = "".join("[" if level % 2 else '{"a":' for level in range(levels))
    return opening + inside + "".join("]" if level % 2 else "}" for level in reversed(range(levels)))


def node(name: str, version: int) -> str:
    return json.dumps({"metadata": {"name": name, "uid": name, "resourceVersion": str(version)}, "spec": "DEEP"})


def nested(name: str, version: int) -> str:
    return node(name, version).replace('"DEEP"', deep(TOO_DEEP))


@pytest.mark.parametrize("levels", [1, MOST - 1, MOST])
def test_what_is_not_too_deep_stays(levels: int) -> None:
    raw = deep(levels).encode()
    assert cut(raw) == raw


@pytest.mark.parametrize("more", [1, 2, TOO_DEEP])
def test_what_lies_too_deep_is_null(more: int) -> None:
    assert cut(deep(MOST + more).encode()) == deep(MOST, "null").encode()


def test_brackets_in_strings_open_nothing_and_what_follows_the_depths_is_kept() -> None:
    inside = f'["x\\"[[", {deep(1)}, "]", {{"]": "\\\\"}}], "after [": [2]'
    raw = '{"a":' * (MOST - 1) + f'{{"b": {inside}}}' + "}" * (MOST - 1)
    expected = '{"a":' * (MOST - 1) + '{"b": null, "after [": null}' + "}" * (MOST - 1)
    assert cut(raw.encode()) == expected.encode()
    assert msgspec.json.decode(cut(raw.encode()))


JSON = st.recursive(
    st.none() | st.text('[]{}"\\a,:\n', max_size=5) | st.integers(0, 9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text('[]{}"\\', max_size=3), inner, max_size=3),
)


@settings(max_examples=30)
@given(JSON)
def test_no_ordinary_value_changes(value: object) -> None:
    raw = msgspec.json.encode(value)
    assert cut(raw) == raw


@pytest.mark.parametrize("raw", ["[" * TOO_DEEP, '{"a":' * TOO_DEEP, "[" * TOO_DEEP + '"', "]]", '"[', ""])
def test_what_is_no_json_is_refused_as_such(raw: str) -> None:
    with pytest.raises(msgspec.MsgspecError):
        decode(raw.encode(), Metadata)
    with pytest.raises(msgspec.MsgspecError):
        msgspec.json.decode(cut(raw.encode()))


def test_an_error_is_read_past_its_depths() -> None:
    body = f'{{"details": {deep(TOO_DEEP)}, "message": "no", "code": 410}}'.encode()
    assert str(from_response("GET /x", 409, body)) == "GET /x: 409 no"
    assert str(from_status("WATCH /x", body)) == "WATCH /x: 410 no"


async def test_a_reflector_and_a_read_pass_by_the_depths_of_one_object() -> None:
    """Listed and watched, and with other objects beside it."""
    listed = f'{{"metadata":{{"resourceVersion":"5"}},"items":[{nested("deep", 1)},{node("plain", 2)}]}}'
    watched = [f'{{"type":"ADDED","object":{nested("later", 6)}}}', f'{{"type":"ADDED","object":{node("last", 7)}}}']

    done = asyncio.Event()

    async def answer(request: web.Request) -> web.StreamResponse:
        if request.path.endswith("/deep"):
            return web.Response(text=nested("deep", 1))
        if "watch" not in request.query:
            return web.Response(text=listed)
        stream = web.StreamResponse()
        await stream.prepare(request)
        await stream.write("".join(f"{line}\n" for line in watched).encode())
        await done.wait()
        return stream

    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    runner = web.AppRunner(app, shutdown_timeout=1.0)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0]
        async with Client(ClusterConfig(server=f"http://{host}:{port}")) as client:
            assert (await client.get(NODES, "deep", Metadata)).metadata.name == "deep"
            told: list[Change[object]] = []
            clock, backoff = SystemClock(), Backoff(random=random.random)
            mirror: Reflector[object] = Reflector(
                client, NODES, msgspec.json.decode, told.append, clock=clock, backoff=backoff
            )
            following = asyncio.create_task(mirror.run())
            await eventually(lambda: following.done() or len(mirror) == 4, what="every node told")
            assert not following.done()
            following.cancel()
    finally:
        done.set()
        await runner.cleanup()
    assert [change.key.name for change in told if isinstance(change, Added)] == ["deep", "plain", "later", "last"]
