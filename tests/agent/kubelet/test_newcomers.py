"""Pods that the kubelet names without a device: news of them is awaited, for so long and once."""

from collections.abc import Callable

from agent.kubelet.holders import Newcomers
from agent.kubelet.plans import PodKey

NEWS_S = 2.0
OLD, NEW = ("ns", "old"), ("ns", "new")


def known(*pods: PodKey) -> Callable[[PodKey], bool]:
    return lambda pod: pod in pods


def test_nothing_is_awaited_where_every_pod_is_explained() -> None:
    made = Newcomers(NEWS_S)
    assert made.awaited(known(), 10.0) == 0.0
    made.listed([OLD, NEW], known(OLD, NEW), 10.0)
    assert made.awaited(known(OLD, NEW), 10.0) == 0.0


def test_an_unexplained_pod_is_awaited_until_it_is_explained() -> None:
    made = Newcomers(NEWS_S)
    made.listed([OLD, NEW], known(OLD), 10.0)
    assert made.awaited(known(OLD), 10.5) == NEWS_S - 0.5
    assert made.awaited(known(OLD, NEW), 10.5) == 0.0


def test_a_pod_that_is_never_explained_is_awaited_once_however_often_it_is_listed() -> None:
    made = Newcomers(NEWS_S)
    for now_s in (10.0, 11.0, 11.9):
        made.listed([OLD], known(), now_s)
        assert 0 < made.awaited(known(), now_s) <= 12.0 - now_s
    made.listed([OLD], known(), 13.0)
    assert made.awaited(known(), 13.0) == 0.0
    made.listed([OLD, NEW], known(), 20.0)
    assert made.awaited(known(), 20.0) == NEWS_S


def test_a_pod_that_went_and_came_back_is_awaited_anew() -> None:
    made = Newcomers(NEWS_S)
    made.listed([OLD], known(), 10.0)
    made.listed([], known(), 13.0)
    made.listed([OLD], known(), 14.0)
    assert made.awaited(known(), 14.0) == NEWS_S
