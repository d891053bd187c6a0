"""Rate limit: a token bucket that grants ``qps`` per second on average and ``burst`` at once."""

from __future__ import annotations

from app.kube.clock import Clock


class TokenBucket:
    """The bucket starts full. A token may be taken before it is there; then the taker is told how long to wait."""

    def __init__(self, clock: Clock, *, qps: float, burst: int) -> None:
        if qps <= 0 or burst <= 0:
            raise ValueError(f"a token bucket needs qps and burst above zero, not {qps} and {burst}")
        self._clock = clock
        self._qps = qps
        self._burst = float(burst)
        self._tokens = self._burst
        self._filled_at = clock.monotonic()

    def limit(self, *, qps: float, burst: int) -> None:
        """Another rate from now on."""
        self._fill()
        self._qps, self._burst = qps, float(burst)
        self._tokens = min(self._tokens, self._burst)

    def _fill(self) -> None:
        now = self._clock.monotonic()
        self._tokens = min(self._burst, self._tokens + (now - self._filled_at) * self._qps)
        self._filled_at = now

    @property
    def full(self) -> bool:
        """Whether nothing is remembered of who took tokens."""
        self._fill()
        return self._tokens >= self._burst

    def reserve(self) -> float:
        """Take a token for sure; the seconds until it may be used."""
        self._fill()
        self._tokens -= 1
        return max(0.0, -self._tokens / self._qps)

    def try_take(self) -> bool:
        """Take a token only if one is there."""
        self._fill()
        # The sum of many small refills may fall short of a whole token by a rounding error.
        if self._tokens < 1 - 1e-9:
            return False
        self._tokens -= 1
        return True

    async def take(self) -> None:
        """Take a token and wait until it may be used."""
        if delay := self.reserve():
            await self._clock.sleep(delay)


class RejectingBucket(TokenBucket):
    """A bucket for unknown callers: whoever would wait for long is rejected and takes no token, so that a
    flood does not run into a debt that others pay."""

    def __init__(self, clock: Clock, *, qps: float, burst: int, longest: float) -> None:
        super().__init__(clock, qps=qps, burst=burst)
        self._longest = longest

    async def take(self) -> None:
        """Take a token and wait until it may be used. Raises TimeoutError where that would take too long."""
        self._fill()
        if -self._tokens / self._qps > self._longest:
            raise TimeoutError("too many requests to the API server: try again")
        await super().take()
