"""The registry of a process' own figures and its exposition: the use of prometheus_client that both processes share.

Both expose version 0.0.4 of the text format, without the ``_created`` series that the library adds by default.
"""

from collections.abc import Callable, Iterable
from typing import Final

from prometheus_client import CollectorRegistry, Metric, disable_created_metrics, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.registry import Collector

TEXT_TYPE: Final = CONTENT_TYPE_PLAIN_0_0_4

disable_created_metrics()  # type: ignore[no-untyped-call]


class KeptText(Collector):
    """A collector whose series are text already: the library's writer does not see its samples, and no code parses
    them.

    ``text`` returns whole families, each with its header. No other collector of the registry may have one of them.
    """

    def __init__(self, text: Callable[[], bytes]) -> None:
        self.text = text

    def collect(self) -> Iterable[Metric]:
        return ()


class Registry(CollectorRegistry):
    """A registry whose exposition is the library's, then the kept texts in the order in which they were registered."""

    def __init__(self) -> None:
        super().__init__()
        self._kept: list[KeptText] = []

    def register(self, collector: Collector) -> None:
        super().register(collector)
        if isinstance(collector, KeptText):
            self._kept.append(collector)

    def exposition(self) -> bytes:
        return b"".join((generate_latest(self), *(text.text() for text in self._kept)))
