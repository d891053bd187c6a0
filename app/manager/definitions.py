"""Track which of our CustomResourceDefinitions are not installed. A kind without its definition is off."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from app.manager.metrics import ManagerMetrics

logger = logging.getLogger(__name__)


class MissingDefinitions:
    """Names of definitions that are not installed. ``changed`` is called with them whenever they change."""

    def __init__(self, metrics: ManagerMetrics, changed: Callable[[Iterable[str]], None]) -> None:
        self._metrics = metrics
        self._changed = changed
        #: None until the first check.
        self._names: frozenset[str] | None = None

    def __len__(self) -> int:
        return len(self._names or ())

    def note(self, missing: frozenset[str]) -> None:
        """Log and count changes, and call ``changed``."""
        before = self._names or frozenset()
        for name in sorted(missing - before):
            logger.error(
                "CustomResourceDefinition %s is not installed: kubectl apply -f deploy/crds/ (its kind is off)",
                name,
            )
        for name in sorted(before - missing):
            logger.info("CustomResourceDefinition %s is installed: its kind is on", name)
        for name in missing | before:
            self._metrics.missing_definitions.labels(name).set(name in missing)
        if missing != self._names:
            self._names = missing
            self._changed(missing)
