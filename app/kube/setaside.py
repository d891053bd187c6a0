"""Objects that cannot be read, or over which an index fails: set aside, counted, and told once each."""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Final

import msgspec

from app.kube.errors import describe
from app.kube.reflector_metrics import ReflectorError, ReflectorMetrics
from app.kube.resources import ObjectKey

logger = logging.getLogger(__name__)

#: How much is kept of why an object could not be read.
_WHY_LENGTH: Final = 256


class UnreadableObjects:
    """Those of one kind."""

    def __init__(self, kind: str, metrics: ReflectorMetrics) -> None:
        """None so far."""
        self._kind = kind
        self._metrics = metrics
        self._why: dict[ObjectKey, str] = {}

    def set_aside(self, key: ObjectKey, error: Exception) -> None:
        """An object cannot be read; what was known of it is left as it was."""
        self._metrics.error(self._kind, ReflectorError.UNREADABLE)
        why = str(error) if isinstance(error, ValueError | msgspec.MsgspecError) else f"{type(error).__name__}: {error}"
        why = ascii(why[:_WHY_LENGTH])[1:-1]  # it may quote what somebody wrote
        if self._why.get(key) != why:
            name = describe(self._kind, key.namespace, key.name or "(no name)")
            logger.error("%s cannot be read and is left as it was known: %s", name, why)
        self._why[key] = why
        self._metrics.set_aside(self._kind, len(self._why))

    def take_back(self, key: ObjectKey) -> None:
        """An object can be read, or is gone."""
        if self._why and self._why.pop(key, None) is not None:
            self._metrics.set_aside(self._kind, len(self._why))

    def keep_only(self, keys: Collection[ObjectKey]) -> None:
        """All others can be read, or are gone."""
        for key in self._why.keys() - keys:
            self.take_back(key)
