"""Pods under admission that no news of the API server explains yet. Pure.

The kubelet has a pod among its own before it admits it: List of pod resources names the pod that a call is for, without
a device. A pod that the watch knows as well needs no wait, whatever it asks for; one that it does not know is waited
for, once.
"""

from collections.abc import Callable, Iterable

from agent.kubelet.plans import PodKey


class Newcomers:
    """The time at which each pod that holds nothing and is not explained was first listed. News of it comes within
    ``news_s`` or never, as for a static pod that the API server refused.
    """

    def __init__(self, news_s: float) -> None:
        self._news_s = news_s
        self._since_s: dict[PodKey, float] = {}

    def listed(self, without: Iterable[PodKey], explained: Callable[[PodKey], bool], now_s: float) -> None:
        """Take in that the kubelet lists these pods, which hold none of our devices, and no others that hold none."""
        self._since_s = {pod: self._since_s.get(pod, now_s) for pod in without if not explained(pod)}

    def awaited(self, explained: Callable[[PodKey], bool], now_s: float) -> float:
        """The seconds that news may still take to come; 0 where none is awaited."""
        since_s = (since_s for pod, since_s in self._since_s.items() if not explained(pod))
        return max(0.0, max(since_s, default=-self._news_s) + self._news_s - now_s)
