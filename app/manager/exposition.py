"""Metrics of several processes as one exposition: what is counted is added up, and goes on where a process ended.

prometheus-client's own multiprocess mode wants a writable folder and its own value class for each metric; ours are
plain numbers where reviews are counted. So each process hands over what its registry collects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, TypeAlias

import msgspec
from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

#: Sample name and labels.
_Key: TypeAlias = tuple[str, tuple[tuple[str, str], ...]]


def _soonest(one: float, other: float) -> float:
    """The smaller of two moments; zero: none known."""
    return min(one, other) if one and other else one or other


#: Gauges that are not added up: all processes tell the same, or the one that is worst off counts.
_COMBINED: Final[Mapping[str, Callable[[float, float], float]]] = {
    "python_info": max,
    "kruise_manager_is_leader": max,
    "kruise_manager_missing_rights": max,
    "kruise_serving_certificate_expiry_timestamp_seconds": _soonest,
}


class Family(msgspec.Struct, frozen=True, array_like=True):
    """One metric as a process has it."""

    name: str
    help: str
    type: str
    samples: list[tuple[str, dict[str, str], float]]

    @property
    def accumulates(self) -> bool:
        """Whether its values only grow, so that they must go on where a predecessor of the process ended."""
        return self.type in ("counter", "histogram", "summary") and not self.of_process

    @property
    def of_process(self) -> bool:
        """Whether it describes the process itself: shown per process."""
        return self.name.startswith("process_")


def families(registry: CollectorRegistry) -> list[Family]:
    """Everything a registry holds now."""
    return [
        Family(
            metric.name,
            metric.documentation,
            metric.type,
            [(sample.name, dict(sample.labels), float(sample.value)) for sample in metric.samples],
        )
        for metric in registry.collect()
    ]


def continued(now: Sequence[Family], predecessor: Sequence[Family]) -> list[Family]:
    """What a process counts on top of what the one before it in the same place had counted."""
    before = {family.name: family for family in predecessor if family.accumulates}
    found = []
    for family in now:
        old = before.pop(family.name, None)
        found.append(family if old is None else _added(family.name, [("", old), ("", family)]))
    return [*found, *before.values()]


def merged(of_processes: Mapping[str, Sequence[Family]]) -> list[Family]:
    """One family per name out of those of all processes."""
    together: dict[str, list[tuple[str, Family]]] = {}
    for process, found in of_processes.items():
        for family in found:
            together.setdefault(family.name, []).append((process, family))
    return [_added(name, parts) for name, parts in together.items()]


def _added(name: str, parts: Sequence[tuple[str, Family]]) -> Family:
    combine = _COMBINED.get(name)
    values: dict[_Key, float] = {}
    for process, family in parts:
        for sample, labels, value in family.samples:
            shown = {**labels, "process": process} if family.of_process else labels
            key = (sample, tuple(shown.items()))
            if key not in values:
                values[key] = value
            elif combine is None:
                values[key] += value
            else:
                values[key] = combine(values[key], value)
    first = parts[0][1]
    samples = [(sample, dict(labels), value) for (sample, labels), value in values.items()]
    return Family(name, first.help, first.type, samples)


def text(found: Iterable[Family]) -> bytes:
    """The text Prometheus scrapes."""
    all_of_them = list(found)
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Ready(all_of_them))
    shown = generate_latest(registry)
    for family in all_of_them:
        # Counters whose names OpenKruise chose have no ``_total``; prometheus-client heads every counter with it.
        if family.type == "counter" and any(name == family.name for name, _, _ in family.samples):
            for head in ("HELP", "TYPE"):
                shown = shown.replace(f"# {head} {family.name}_total ".encode(), f"# {head} {family.name} ".encode())
    return shown


class _Ready(Collector):
    def __init__(self, found: Iterable[Family]) -> None:
        self._found = found

    def collect(self) -> Iterable[Metric]:
        for family in self._found:
            metric = Metric(family.name, family.help, family.type)
            for sample, labels, value in family.samples:
                metric.add_sample(sample, labels, value)
            yield metric
