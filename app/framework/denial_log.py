"""Record each denied request in metrics and in ``protection.log``. [DP-41, PUB-69]"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, TextIO

import orjson
from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from app.kube.text import BoundedLabels, quoted

logger = logging.getLogger(__name__)

LOG_NAME: Final = "protection.log"
#: Size at which the file is rotated. Some clients retry a denied deletion forever, for example in a terminating
#: Namespace. They must not fill the volume, because the kubelet evicts a Pod that exceeds its volume's limit. [DP-43]
MAX_BYTES: Final = 32 * 1024 * 1024


class RefusalMetrics(Collector):
    """Counters of denied requests by object and user. The metrics' names are OpenKruise's and lack the ``_total`` that
    prometheus-client adds to counters."""

    def __init__(self, registry: CollectorRegistry, families: Mapping[str, str]) -> None:
        """Register the metrics. ``families`` maps their names to help texts."""
        self._families = families
        self._counts: dict[tuple[str, ...], int] = {}
        #: Limits the series, because any caller that reaches the port can make up objects and users.
        self._labels = BoundedLabels()
        registry.register(self)

    def add(self, family: str, label: str, value: str, username: str) -> None:
        """Count one denial; ``label`` and ``value`` identify the object."""
        key = (family, label, *self._labels.of(value, username))
        self._counts[key] = self._counts.get(key, 0) + 1

    def collect(self) -> Iterable[Metric]:
        """Return the metric families that count at least one denial. [DP-40]"""
        for family, documentation in self._families.items():
            metric = Metric(family, documentation, "counter")
            for (counted, label, value, username), number in list(self._counts.items()):  # a thread may be counting
                if counted == family:
                    metric.add_sample(family, {label: value, "username": username}, number)
            if metric.samples:
                yield metric


class ProtectionLog:
    """``protection.log``: one JSON line per denied request. If it cannot be written, lines go to ``stdout``. [MGR-126]

    The file is opened for each line, so that it can be rotated and shared by several processes. When it reaches
    ``max_bytes``, it is renamed to ``protection.log.1``, replacing the previous one.
    """

    def __init__(self, folder: Path, stdout: TextIO | None = None, *, max_bytes: int = MAX_BYTES) -> None:
        self.path = folder / LOG_NAME
        self.older = folder / f"{LOG_NAME}.1"
        self._max_bytes = max_bytes
        self._stdout = stdout
        self._complained = False

    def check(self) -> None:
        """Warn now, rather than at the first denial, if the file cannot be written."""
        self._append(b"")

    def write(self, event: str, kind: str, namespace: str, name: str, username: str) -> None:
        """Log one denied request. The key UserAgent contains the user. [DP-41]

        Any caller that reaches the port can invent names and users, so their length is limited: otherwise a few reviews
        could push older lines out of the file.
        """
        entry = {
            "Event": event,
            "Kind": kind,
            "Namespace": quoted(namespace),
            "Name": quoted(name),
            "UserAgent": quoted(username),
        }
        line = orjson.dumps(entry) + b"\n"
        if not self._append(line):
            stream = self._stdout if self._stdout is not None else sys.stdout
            stream.write(line.decode())
            stream.flush()

    def _append(self, line: bytes) -> bool:
        try:
            # Unbuffered: one write per line, which O_APPEND makes atomic.
            with self.path.open("ab", buffering=0) as file:
                file.write(line)
                if file.tell() >= self._max_bytes:
                    self._put_aside(file.fileno())
        except OSError as error:
            if not self._complained:
                self._complained = True
                logger.warning(
                    "--protection-log-path: %s cannot be written (%s): denials are logged to standard output",
                    self.path,
                    error.strerror,
                )
            return False
        self._complained = False
        return True

    def _put_aside(self, file: int) -> None:
        """Rename the full file, unless another process already did. If that fails, the file keeps growing."""
        with contextlib.suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_EX)
            if os.path.samestat(os.fstat(file), self.path.stat()):
                self.path.replace(self.older)
