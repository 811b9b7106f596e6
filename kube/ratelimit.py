"""A token bucket: so many calls a second on average, so many at once."""

from kube.clock import Clock, sleep


class RateLimit:
    """Lets ``burst`` calls through at once and ``qps`` a second after that, in the order in which they asked.

    Each waiting caller has a token of its own: two callers never wake for the same one.
    """

    def __init__(self, *, qps: float, burst: int, clock: Clock) -> None:
        if qps <= 0 or burst < 1:
            raise ValueError(f"qps and burst: found {qps} and {burst}, expected more than 0 and at least 1")
        self._qps = qps
        self._burst = burst
        self._clock = clock
        self._tokens = float(burst)
        self._filled_s = clock.monotonic()

    async def take(self) -> None:
        """Return when the call may be made."""
        wait_s = self.reserve(self._clock.monotonic())
        if wait_s > 0:
            await sleep(self._clock, wait_s)

    def reserve(self, now_s: float) -> float:
        """Take one token, a future one if need be: seconds until it is there."""
        grown = (now_s - self._filled_s) * self._qps
        self._tokens = min(float(self._burst), self._tokens + grown) - 1
        self._filled_s = now_s
        return max(0.0, -self._tokens / self._qps)
