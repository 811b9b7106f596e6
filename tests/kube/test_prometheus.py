"""Prometheus' HTTP API as a client sees it; its other answers are tested with what asks."""

import pytest

from kube import prometheus
from kube.prometheus import NotLetInError, Prometheus, PrometheusError
from tests.support.firstuse import crashes
from tests.support.hang import HANG_S
from tests.support.prometheus import served, vector


class Answers:
    def __init__(self, status: int, body: bytes) -> None:
        self.headers: list[str] = []
        self.given = status, body

    def body(self, query: str) -> tuple[int, bytes]:
        return self.given if query == "up" else (400, b'{"status": "error", "error": "parse\\n error"}')


async def ask(status: int, body: bytes, query: str = "up", token: str | None = None) -> tuple[object, list[str]]:
    answers = Answers(status, body)
    with served(answers) as url:
        found = await Prometheus(url, token, timeout_s=HANG_S).ask({"a": query})
    return found, answers.headers


async def test_a_vector_is_labels_and_numbers() -> None:
    found, headers = await ask(*vector([({"x": "y"}, 0.5), ({}, float("inf"))]), token="t")
    assert found == {"a": [({"x": "y"}, 0.5), ({}, float("inf"))]}
    assert headers == ["Bearer t"]


@pytest.mark.parametrize(("most", "taken"), [(200, False), (100_000, True)])
async def test_an_answer_is_read_up_to_a_bound(most: int, taken: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prometheus, "_MOST_BYTES", most)
    status, body = vector([({"x": "y" * 300}, 1.0)])
    if taken:
        assert (await ask(status, body))[0] == {"a": [({"x": "y" * 300}, 1.0)]}
        return
    with pytest.raises(PrometheusError, match="found an answer of more than 200 bytes, expected fewer series"):
        await ask(status, body)


async def test_an_answer_as_long_as_the_bound_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    status, body = vector([({"x": "y"}, 1.0)])
    monkeypatch.setattr(prometheus, "_MOST_BYTES", len(body))
    assert (await ask(status, body))[0] == {"a": [({"x": "y"}, 1.0)]}


async def test_what_went_wrong_is_one_line() -> None:
    with pytest.raises(PrometheusError, match=r"answered 400: parse error$"):
        await ask(200, b"", query="down(")
    with pytest.raises(NotLetInError, match=r"answered 403$"):
        await ask(403, b"")
    with pytest.raises(PrometheusError, match=r"answered 301: found no JSON"):
        await ask(301, b"moved")


def test_the_first_answers_of_a_process_may_come_at_once() -> None:
    assert not crashes(
        "from kube.prometheus import Prometheus\nfound = Prometheus('http://p', timeout_s=1)",
        """found._vector(200, b'{"status": "success", "data": {"result": [{"metric": {}, "value": [1, "2"]}]}}')
    found._matrix(200, b'{"status": "success", "data": {"result": [{"metric": {}, "values": [[1, "2"]]}]}}')""",
    )
