"""Metrics of the admission service and the periodic summary in its log."""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_left
from collections.abc import Callable, Iterable
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

# Requests, latency and denials per path. Each path keeps plain numbers in its own ``PathStats``, and a collector turns
# them into metric families on each scrape. Counting costs a few attribute writes per review, whereas
# prometheus-client's counters and histograms each take a lock. The metric names are those that controller-runtime
# dashboards expect. [MGR-25]

LATENCY_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class PathStats:
    """Statistics for one webhook path."""

    __slots__ = ("bad_requests", "codes", "decisions", "in_flight", "latency_counts", "latency_sum", "panics", "path")

    def __init__(self, path: str) -> None:
        self.path = path
        self.in_flight = 0
        self.codes: dict[int, int] = {200: 0}
        #: (webhook name, outcome) → count; outcome is allowed, patched, denied or error.
        self.decisions: dict[tuple[str, str], int] = {}
        self.bad_requests: dict[str, int] = {}
        self.panics = 0
        self.latency_sum = 0.0
        self.latency_counts = [0] * (len(LATENCY_BUCKETS) + 1)

    def finished(self, code: int, seconds: float) -> None:
        self.codes[code] = self.codes.get(code, 0) + 1
        self.latency_sum += seconds
        self.latency_counts[bisect_left(LATENCY_BUCKETS, seconds)] += 1

    def decided(self, webhook: str, outcome: str, times: int = 1) -> None:
        key = (webhook, outcome)
        self.decisions[key] = self.decisions.get(key, 0) + times

    def bad_request(self, reason: str) -> None:
        self.bad_requests[reason] = self.bad_requests.get(reason, 0) + 1


class AdmissionMetrics(Collector):
    """Collects the statistics of all paths as metric families."""

    def __init__(self) -> None:
        self._paths: dict[str, PathStats] = {}

    def path(self, path: str) -> PathStats:
        """Return the statistics for a path. Repeated calls return the same object."""
        return self._paths.setdefault(path, PathStats(path))

    def collect(self) -> Iterable[Metric]:
        requests = CounterMetricFamily(
            "controller_runtime_webhook_requests",
            "Number of admission requests by webhook path and HTTP code.",
            labels=["webhook", "code"],
        )
        latency = HistogramMetricFamily(
            "controller_runtime_webhook_latency_seconds", "Time to respond to an admission request.", labels=["webhook"]
        )
        in_flight = GaugeMetricFamily(
            "controller_runtime_webhook_requests_in_flight",
            "Number of admission requests in flight.",
            labels=["webhook"],
        )
        panics = CounterMetricFamily(
            "controller_runtime_webhook_panics", "Number of unexpected handler failures.", labels=["webhook"]
        )
        decisions = CounterMetricFamily(
            "kruise_admission_decisions",
            "Number of decisions by webhook name and outcome.",
            labels=["webhook", "outcome"],
        )
        bad_requests = CounterMetricFamily(
            "kruise_admission_bad_requests",
            "Number of malformed admission requests by reason.",
            labels=["webhook", "reason"],
        )
        for stats in self._paths.values():
            for code, count in stats.codes.items():
                requests.add_metric([stats.path, str(code)], count)
            latency.add_metric([stats.path], _cumulative(stats.latency_counts), stats.latency_sum)
            in_flight.add_metric([stats.path], stats.in_flight)
            panics.add_metric([stats.path], stats.panics)
            for (webhook, outcome), count in stats.decisions.items():
                decisions.add_metric([webhook, outcome], count)
            for reason, count in stats.bad_requests.items():
                bad_requests.add_metric([stats.path, reason], count)
        return (requests, latency, in_flight, panics, decisions, bad_requests)


def _cumulative(counts: list[int]) -> list[tuple[str, float]]:
    buckets: list[tuple[str, float]] = []
    total = 0
    for bound, count in zip((*LATENCY_BUCKETS, "+Inf"), counts, strict=True):
        total += count
        buckets.append((str(bound), total))
    return buckets


logger = logging.getLogger(__name__)

#: Seconds between summary lines.
SUMMARY_SECONDS: Final = 60.0
#: Maximum number of log lines about single reviews per summary interval, so that a caller cannot fill the disk.
SINGLE_LINES: Final = 30


class Summary:
    """Counts reviews between summary lines. ``last`` returns a description of the latest decision."""

    def __init__(self, paths: Iterable[PathStats], last: Callable[[], str]) -> None:
        self.paths = tuple(paths)
        self._last = last
        self._before: dict[str, int] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._lines = 0

    def begin(self) -> None:
        """Schedule a summary line if none is pending."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(SUMMARY_SECONDS, self.end)

    def one_more_line(self) -> bool:
        """Return whether another review may be logged in this interval."""
        self._lines += 1
        return self._lines <= SINGLE_LINES

    def end(self) -> None:
        """Log the counts since the last summary."""
        self._timer = None
        now = self._counted()
        new = {what: count - self._before.get(what, 0) for what, count in now.items()}
        unsaid = max(0, self._lines - SINGLE_LINES)
        self._before, self._lines = now, 0
        text = ", ".join(f"{what} {count}" for what, count in sorted(new.items()) if count)
        if text:
            logger.info("reviews in the last %d s: %s; latest: %s", int(SUMMARY_SECONDS), text, self._last())
        if unsaid:
            logger.warning("%d more denials and failures were not logged", unsaid)

    def _counted(self) -> dict[str, int]:
        counted: dict[str, int] = {}
        for stats in self.paths:
            for (_, outcome), count in stats.decisions.items():
                counted[outcome] = counted.get(outcome, 0) + count
            for reason, count in stats.bad_requests.items():
                counted[reason] = counted.get(reason, 0) + count
        return counted
