"""Growing, jittered pauses between attempts."""

from collections.abc import Callable


class Backoff:
    """Exponential backoff with full-range jitter of +-``jitter``. ``random`` returns 0 to 1 and is handed in.

    Without jitter, every agent of a fleet would come back at the same instant after an outage.
    """

    def __init__(
        self,
        *,
        random: Callable[[], float],
        initial_s: float = 0.5,
        maximum_s: float = 60.0,
        factor: float = 2.0,
        jitter: float = 0.25,
    ) -> None:
        self._random = random
        self._initial_s = initial_s
        self._maximum_s = maximum_s
        self._factor = factor
        self._jitter = jitter
        self._base_s = initial_s

    def next(self) -> float:
        """Seconds to wait before the next attempt; each call without a ``reset`` makes the following one longer."""
        base = self._base_s
        self._base_s = min(base * self._factor, self._maximum_s)
        return base * (1 + self._jitter * (2 * self._random() - 1))

    def reset(self) -> None:
        """Start again from the shortest pause: an attempt succeeded."""
        self._base_s = self._initial_s
