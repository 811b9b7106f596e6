"""The benchmark of agents: what a recording says, and that a fleet on virtual time comes back one after the other."""

import logging
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hack.bench.agents.exchanges import Connection, Exchange, span
from hack.bench.agents.replay import Load, script, wall
from hack.bench.agents.returning import STORIES, Story, fleet, returned
from hack.bench.agents.traffic import hour

GET = b"GET /api/v1/nodes/node-1 HTTP/1.1\r\nHost: a\r\n\r\n"
PATCH = b"PATCH /apis/tessera.dev/v1alpha1/gpunodes/node-1?force=true HTTP/1.1\r\nContent-Length: 5\r\n\r\n{...}"
WATCH = b"GET /api/v1/pods?watch=true&fieldSelector=spec.nodeName%3Dnode-1 HTTP/1.1\r\n\r\n"


@given(st.lists(st.sampled_from([GET, PATCH, WATCH]), max_size=8), st.data())
def test_requests_are_found_however_their_bytes_are_cut(requests: list[bytes], data: st.DataObject) -> None:
    found: list[Exchange] = []
    connection = Connection(found)
    left = b"".join(requests)
    while left:
        size = data.draw(st.integers(1, len(left)))
        connection.up(left[:size], 1.0)
        left = left[size:]
    assert [each.raw for each in found] == requests
    assert sum(each.bytes_between(0, 2)[0] for each in found) == sum(map(len, requests))


def test_a_request_is_known_by_its_kind_and_a_watchs_bytes_count_when_they_come() -> None:
    found: list[Exchange] = []
    one, other = Connection(found), Connection(found)
    one.up(GET, 1.0)
    one.down(b"x" * 100, 1.1)
    one.up(PATCH, 2.0)
    other.up(WATCH, 3.0)
    other.down(b"y" * 10, 3.5)
    other.down(b"y" * 20, 9.0)
    assert [each.kind for each in found] == ["GET nodes", "PATCH gpunodes", "WATCH pods"]
    later = span(found, 8.0, 10.0)
    assert (later.requests, later.sent, later.received) == (0, 0, 20)
    assert span(found, 0.0, 5.0).received == 110
    with pytest.raises(ValueError, match="length"):
        one.up(b"POST /api/v1/events HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", 4.0)


@pytest.mark.parametrize("node", ["node-1", "ip-10-0-0-1", "gpu-00042"])
def test_an_agent_at_rest_asks_less_than_twenty_times_an_hour(node: str) -> None:
    rest = span([], 0.0, 60.0)
    found, resetting = hour(node, [], rest), hour(node, [], rest, resets=True)
    assert found.requests < resetting.requests < 20
    assert found.comparisons == resetting.comparisons


@pytest.fixture
def quiet() -> Iterator[None]:
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("story", STORIES[:1] + STORIES[-1:], ids=lambda story: story.what)
def test_a_fleet_that_comes_back_peaks_below_three_times_its_mean(story: Story) -> None:
    found = fleet(300, 10.0, story)
    assert found.requests >= 300 * 8
    assert found.ratio < 3
    assert found.lasted_s >= 9


@pytest.mark.usefixtures("quiet")
def test_without_a_window_a_restarted_fleet_comes_in_one_second() -> None:
    found = fleet(100, 0.0, STORIES[-1])
    assert found.peak == found.requests


def test_what_came_before_the_server_was_back_does_not_count() -> None:
    found = returned([1.0, 2.0, *(10 + each / 100 for each in range(400))], 10.0, refused=7)
    assert (found.requests, found.refused, found.peak) == (396, 7, 100)


def test_the_wall_is_named_with_what_was_borne() -> None:
    small = Load(250, 2000, 0, 0.1, 2.0, 1.0, 0.1, 300.0, 0.5)
    large = Load(500, 4000, 0, 2.5, 8.0, 2.0, 0.1, 400.0, 0.97)
    assert wall([small], 10.0) == "none up to 250 agents"
    assert "CPU: 97 %" in wall([small, large], 10.0)
    assert "250 agents borne in 10 s; 2.0 ms of the server's CPU a request" in wall([small, large], 10.0)


def test_a_recording_is_played_for_other_nodes_and_lists_close_their_connections() -> None:
    found: list[Exchange] = []
    for kind in ("nodes", "gpulayouts", "pods"):
        path = f"/apis/g/v1/{kind}" if kind == "gpulayouts" else f"/api/v1/{kind}"
        for words in ("?limit=500", "?watch=true&resourceVersion=7"):
            raw = f"GET {path}{words}&fieldSelector=metadata.name%3Dnode-1 HTTP/1.1\r\nHost: a\r\n\r\n"
            Connection(found).up(raw.encode(), 1.0)
    Connection(found).up(GET, 2.0)
    with pytest.raises(KeyError, match="GET gpunodes"):
        script(found)
    Connection(found).up(b"GET /apis/tessera.dev/v1alpha1/gpunodes/node-1 HTTP/1.1\r\n\r\n", 3.0)
    played = script(found)
    assert b"metadata.name%3Dgpu-7 HTTP" in played.of(played.watches["pods"], "gpu-7")
    assert b"\r\nConnection: close\r\n" in played.lists["gpulayouts"]
    assert b"Connection: close" not in played.watches["nodes"]
