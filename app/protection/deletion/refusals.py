"""What is kept of each refused deletion: a count and a line in the protection log (DP-40, DP-41, DP-55)."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final, TextIO

import orjson
from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from app.kube.cardinality import BoundedLabels

logger = logging.getLogger(__name__)

LOG_NAME: Final = "protection.log"
#: Whoever retries a refused deletion for ever (a Namespace that is going, DP-43) must not fill the volume: a manager's
#: Pod that outgrows it is evicted.
MAX_BYTES: Final = 32 * 1024 * 1024
_EXTRA: Final = {
    "Namespace": ("namespace_deletion_protection", "Refused deletions of Namespaces."),
    "CustomResourceDefinition": ("crd_deletion_protection", "Refused deletions of CustomResourceDefinitions."),
}
_WORKLOAD: Final = ("workload_deletion_protection", "Refused deletions of workloads, Services and Ingresses.")


class RefusalCounters(Collector):
    """Refusals as metrics. The names are OpenKruise's, which have no ``_total`` as prometheus-client's own counters."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, ...], int] = {}
        #: Anybody who reaches the port can make up objects and users.
        self._labels = BoundedLabels()

    def count(self, kind: str, namespace: str, name: str, username: str) -> None:
        """One more refusal."""
        family, _ = _EXTRA.get(kind, _WORKLOAD)
        label, value = ("name", name) if kind in _EXTRA else ("kind_namespace_name", f"{kind}_{namespace}_{name}")
        key = (family, label, *self._labels.of(value, username))
        self._counts[key] = self._counts.get(key, 0) + 1

    def collect(self) -> Iterable[Metric]:
        """The families that have a refusal; one without does not appear (DP-40)."""
        for family, documentation in (*_EXTRA.values(), _WORKLOAD):
            metric = Metric(family, documentation, "counter")
            for (counted, label, value, username), number in self._counts.items():
                if counted == family:
                    metric.add_sample(family, {label: value, "username": username}, number)
            if metric.samples:
                yield metric


def refusal_counters(registry: CollectorRegistry) -> RefusalCounters:
    """The counters, registered."""
    counters = RefusalCounters()
    registry.register(counters)
    return counters


class ProtectionLog:
    """``protection.log``: one JSON line per refusal. MGR-126: where it cannot be written, lines go to ``stdout``.

    The file is opened for each line, so that it may be rotated, and so that several processes may share it. One of
    ``max_bytes`` is put aside as ``protection.log.1``, in place of the one before.
    """

    def __init__(self, folder: Path, stdout: TextIO | None = None, *, max_bytes: int = MAX_BYTES) -> None:
        self.path = folder / LOG_NAME
        self.older = folder / f"{LOG_NAME}.1"
        self._max_bytes = max_bytes
        self._stdout = stdout
        self._complained = False

    def check(self) -> None:
        """Warn now if the file cannot be written, rather than at the first refusal."""
        self._append(b"")

    def write(self, kind: str, namespace: str, name: str, username: str) -> None:
        """One refusal (DP-41: the key UserAgent holds the user)."""
        entry = {
            "Event": "DeletionProtection",
            "Kind": kind,
            "Namespace": namespace,
            "Name": name,
            "UserAgent": username,
        }
        line = orjson.dumps(entry) + b"\n"
        if not self._append(line):
            stream = self._stdout if self._stdout is not None else sys.stdout
            stream.write(line.decode())
            stream.flush()

    def _append(self, line: bytes) -> bool:
        try:
            # Unbuffered: one write per line, which O_APPEND keeps whole.
            with self.path.open("ab", buffering=0) as file:
                file.write(line)
                if file.tell() >= self._max_bytes:
                    self._put_aside(file.fileno())
        except OSError as error:
            if not self._complained:
                self._complained = True
                logger.warning(
                    "--protection-log-path: %s cannot be written (%s): refused deletions are logged to standard output",
                    self.path,
                    error.strerror,
                )
            return False
        self._complained = False
        return True

    def _put_aside(self, file: int) -> None:
        """Rename the full file, unless another process did so meanwhile. Where it may not be, it grows on."""
        with contextlib.suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_EX)
            if os.path.samestat(os.fstat(file), self.path.stat()):
                self.path.replace(self.older)


class RefusalRecord:
    """Counts and logs; what the handlers tell of refusals."""

    def __init__(self, counters: RefusalCounters, log: ProtectionLog) -> None:
        self._counters = counters
        self._log = log

    def __call__(self, kind: str, namespace: str, name: str, username: str) -> None:
        """One deletion was refused; ``namespace`` is empty for cluster-scoped objects."""
        self._counters.count(kind, namespace, name, username)
        self._log.write(kind, namespace, name, username)
