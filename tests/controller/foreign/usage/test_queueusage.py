"""What KAI's Queues had before is asked of Prometheus, its answer looked at, and one's own books count without it."""

import asyncio
import ssl
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from controller.cluster.config.settings import UsageMetrics, UsageSource
from controller.cluster.watching.kinds import KAI_QUEUES
from controller.cluster.webhooks.certificates import advanced
from controller.foreign.usage.queueusage import UsageAnswerError, queries, usage
from controller.foreign.usage.queueusage_shell import QueueUsageQueries
from controller.scheduler.engine import Engine
from controller.scheduler.kai.proportion.division import QueueName
from controller.scheduler.mirror.specs import GPU
from controller.scheduler.model.config import EngineConfig, QueueUsage
from controller.scheduler.model.cron import cron
from kube.testing import VirtualClock, eventually
from tests.support.controller.stage import CONFIG, config, stage
from tests.support.controller.told import page
from tests.support.engine.foreignqueues import fill, kai_queue, node, rest
from tests.support.engine.world import World
from tests.support.hang import HANG_S
from tests.support.prometheus import served, vector

NOW_S = 1767571200.0
Series = Iterable[tuple[Mapping[str, str], float]]
SOURCE = UsageSource(
    url="http://p", metrics={GPU: UsageMetrics(allocated='has{resource="gpu"}', capacity="sum(there_is)")}
)


def query(source: UsageSource = SOURCE, **rules: Any) -> str:
    return queries(source, QueueUsage(**rules), NOW_S)[GPU]


def test_use_is_what_a_queue_had_over_what_there_was_in_the_window() -> None:
    assert query(window_s=7200.0) == (
        'sum_over_time((max by (queue_name) (has{resource="gpu"}))[7200s:60s])'
        " / scalar(sum_over_time((max(sum(there_is)))[7200s:60s]))"
    )


def test_with_a_half_life_both_are_halved_with_age() -> None:
    assert query(window_s=7200.0, half_life_s=600.0) == (
        'sum_over_time((max by (queue_name) (has{resource="gpu"}) * 0.5 ^ ((1767571200 - time()) / 600))[7200s:60s])'
        " / scalar(sum_over_time((max(sum(there_is)) * 0.5 ^ ((1767571200 - time()) / 600))[7200s:60s]))"
    )


def test_a_short_half_life_is_not_rounded_to_nothing() -> None:
    assert "- time()) / 0.1))" in query(window_s=7200.0, half_life_s=0.1)


@pytest.mark.parametrize(
    ("rules", "over"),
    [
        ({"tumbles_from_s": NOW_S - 1800.5}, "[1801s:60s]"),
        ({"tumbles_from_s": NOW_S}, "[60s:60s]"),
        ({"cron": cron("0 12 * * *")}, "[3600s:60s]"),
        ({"cron": cron("30 23 * * *")}, "[1800s:60s]"),
    ],
)
def test_a_window_that_has_just_begun_is_as_long_as_it_has_lasted(rules: dict[str, Any], over: str) -> None:
    assert over in query(window_s=3600.0, **rules)


def answer(*series: tuple[Mapping[str, str], float]) -> dict[QueueName, Any]:
    return dict(usage({GPU: list(series), "cpu": []}))


def test_parts_are_taken_by_queue_and_resource() -> None:
    assert answer(({"queue_name": "a"}, 0.25), ({"queue_name": "b", "x": "y"}, 1.5), ({"queue_name": "c"}, 0.0)) == {
        "a": {GPU: 0.25},
        "b": {GPU: 1.0},
        "c": {GPU: 0.0},
    }


def test_a_resource_that_there_is_none_of_has_no_use() -> None:
    nan = float("nan")
    found = usage({GPU: [({"queue_name": "a"}, nan)], "cpu": [({"queue_name": "a"}, 0.5)]})
    assert found == {"a": {"cpu": 0.5}}


@pytest.mark.parametrize(
    ("series", "said"),
    [
        ([], "found no series of any Queue"),
        ([({"queue_name": "a"}, float("inf"))], "found no series of any Queue"),
        ([({"queue": "a"}, 0.5)], "without queue_name"),
        ([({"queue_name": "a"}, -0.5)], "found -0.5 of nvidia.com/gpu for a, expected at least 0"),
        ([({"queue_name": "a" * 99}, float("-inf"))], "found -inf of nvidia.com/gpu for aaa"),
    ],
)
def test_an_answer_that_says_nothing_of_past_use_is_refused(series: Series, said: str) -> None:
    with pytest.raises(UsageAnswerError, match=said):
        usage({GPU: list(series)})


class Answers:
    """One status and body for all questions."""

    def __init__(self, *series: tuple[Mapping[str, str], float]) -> None:
        self.headers: list[str] = []
        self.asked: list[str] = []
        self.given = vector(series)

    def body(self, query: str) -> tuple[int, bytes]:
        self.asked.append(query)
        return self.given


class Asking:
    """Questions to ``url`` for an engine with two Queues, and what was told of them."""

    def __init__(self, url: str, *, stale_s: float = 300.0, **files: Any) -> None:
        rules = QueueUsage(window_s=86400.0, stale_s=stale_s)
        self.lab = World(EngineConfig(queue_usage=rules))
        self.lab.put(node("n1", 4), kai_queue("a", born_s=1), kai_queue("b", born_s=2))
        self.told: list[tuple[str, str]] = []
        self.woken = 0
        source = UsageSource(url=url, timeout_s=HANG_S, metrics=SOURCE.metrics, **files)
        self.clock = VirtualClock()
        self.queries = QueueUsageQueries(
            source,
            rules,
            self.lab.engine,
            wake=self._wake,
            clock=self.clock,
            tell=lambda type_, reason, note: self.told.append((f"{type_}/{reason}", note)),
        )

    def _wake(self) -> None:
        self.woken += 1

    async def ask(self) -> None:
        await self.queries.ask()
        self.lab.engine.validate()


async def test_what_prometheus_measured_divides_in_place_of_the_own_books() -> None:
    answers = Answers(({"queue_name": "b"}, 1.0))
    with served(answers) as url:
        asking = Asking(url)
        await asking.ask()
    lab = asking.lab
    lab.now_s = asking.clock.wall()
    fill(lab, "a", 8)
    fill(lab, "b", 8)
    assert rest(lab) == {"a": 4, "b": 0}
    assert (asking.woken, asking.told) == (1, [])


async def test_an_old_answer_counts_no_longer() -> None:
    with served(Answers(({"queue_name": "b"}, 1.0))) as url:
        asking = Asking(url)
        await asking.ask()
    lab = asking.lab
    lab.now_s = asking.clock.wall() + 300.0
    fill(lab, "a", 8)
    fill(lab, "b", 8)
    assert rest(lab) == {"a": 2, "b": 2}


async def test_a_server_that_is_away_is_told_once_and_once_that_it_is_back() -> None:
    answers = Answers(({"queue_name": "b"}, 1.0))
    with served(answers) as url:
        asking = Asking(url)
        await asking.ask()
        good, answers.given = answers.given, (503, b'{"status": "error", "error": "TSDB not ready"}')
        asking.clock.advance(60.0)
        await asking.ask()
        await asking.ask()
        answers.given = good
        await asking.ask()
        await asking.ask()
    (warned, why), (back, note) = asking.told
    assert (warned, back) == ("Warning/PastUseNotMeasured", "Normal/PastUseMeasured")
    assert f"{url}: answered 503: TSDB not ready; its last answer counts until" in why
    assert why.endswith("then the controller's own books count")
    assert note == f"{url} answers again what KAI's Queues had before"


async def test_a_token_that_was_renewed_goes_along_and_what_a_file_says_is_told_nobody(tmp_path: Path) -> None:
    token, answers = tmp_path / "token", Answers(({"queue_name": "b"}, 1.0))
    with served(answers) as url:
        asking = Asking(url, token_file=token)
        await asking.ask()
        for content in (b"first\n", b"next.2=", b"hush hush", b"\xff", b"", b"a\nb: c"):
            token.write_bytes(content)
            await asking.ask()
    assert answers.headers == ["Bearer first", "Bearer next.2="]
    first, back, second = (note for _, note in asking.told)
    assert f": {token}: no such file or directory, expected a readable file; the controller's own books" in first
    assert "answers again" in back
    assert f": {token}: found no bearer token, expected one alone; its last answer counts until" in second
    assert "hush" not in second


async def test_a_server_is_trusted_by_the_authorities_that_the_file_has_now(tmp_path: Path) -> None:
    kept, authorities = advanced(None, ("127.0.0.1",), time.time()), tmp_path / "ca"
    for name, content in (("crt", kept.serving.certificate), ("key", kept.serving.key)):
        (tmp_path / name).write_bytes(content)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(tmp_path / "crt", tmp_path / "key")
    with served(Answers(({"queue_name": "b"}, 1.0)), tls) as url:
        asking = Asking(url, ca_file=authorities)
        authorities.write_bytes(kept.serving.key)
        await asking.ask()
        authorities.write_bytes(kept.trusted)
        await asking.ask()
    assert [reason for reason, _ in asking.told] == ["Warning/PastUseNotMeasured", "Normal/PastUseMeasured"]
    assert f"{authorities}: found no certificate, expected some in PEM form" in asking.told[0][1]


async def test_without_any_answer_the_own_books_count_from_the_start() -> None:
    with served(Answers()) as url:
        asking = Asking(url)
        await asking.ask()
        assert asking.told[0][1].endswith("that scrapes the controller; the controller's own books count")
    nobody = Asking(url)
    await nobody.ask()
    assert f"{url}: cannot be reached: " in nobody.told[0][1]
    assert nobody.woken == 0


HOSTILE = [
    (200, b"<html>"),
    (200, b"[" * 200_000),
    (200, b'{"status": "success"}'),
    (200, b'{"status": "success", "data": {"resultType": "matrix", "result": [{"metric": {}, "values": []}]}}'),
    (200, b'{"status": "success", "data": {"result": [{"metric": {"queue_name": 7}, "value": [0, "1"]}]}}'),
    (200, b'{"status": "success", "data": {"result": [{"metric": {"queue_name": "a"}, "value": [0, "much"]}]}}'),
    (200, b'{"status": "success", "data": {"result": [{"metric": {"queue_name": "a"}, "value": ["0", null]}]}}'),
    (200, b'{"status": 200, "data": "none"}'),
    (200, b""),
    (302, b"elsewhere"),
    (401, b"who are you"),
    (200, b"\xff\xfe"),
]


@pytest.mark.parametrize("given", HOSTILE, ids=range(len(HOSTILE)))
async def test_whatever_else_is_answered_ends_nothing(given: tuple[int, bytes]) -> None:
    answers = Answers()
    answers.given = given
    with served(answers) as url:
        asking = Asking(url)
        await asking.ask()
    ((reason, note),) = asking.told
    assert reason == "Warning/PastUseNotMeasured"
    assert url in note
    assert "\n" not in note


async def test_it_is_asked_again_after_each_interval() -> None:
    answers = Answers(({"queue_name": "b"}, 1.0))
    with served(answers) as url:
        asking = Asking(url)
        task = asyncio.create_task(asking.queries.run())
        await eventually(lambda: len(answers.asked) == 1)
        await eventually(lambda: asking.clock.next_wake_s == 60.0)
        asking.clock.advance(60.0)
        await eventually(lambda: len(answers.asked) == 2)
        task.cancel()


async def test_the_controller_asks_where_the_configuration_says_so() -> None:
    answers = Answers(({"queue_name": "a"}, 0.5))
    with served(answers) as url:
        text = f'{CONFIG}  kai: {{enabled: true, usage: {{clientType: prometheus, connectionString: "{url}"}}}}\n'
        async with stage() as scene:
            scene.server.install(KAI_QUEUES)
            async with scene.controller(config(text), core_only=False) as controller:
                await eventually(lambda: "tessera_queue_usage_answer_timestamp_seconds{" in page(controller))
                assert 'tessera_queue_usage_unanswered{replica_role="standalone"} 0.0' in page(controller)
    assert f'tessera_queue_allocated{{resource="{GPU}"}}' in answers.asked[0]


def test_an_engine_without_past_use_takes_no_answer() -> None:
    engine = Engine(EngineConfig())
    assert engine.measured_use({QueueName("a"): {GPU: 1.0}}, NOW_S) is False
    assert engine.state.measured_usage is None
