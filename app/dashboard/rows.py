"""The rows of a section, each worked out when its object changes or other Pods lack it, and kept until then."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from app.dashboard import sections
from app.dashboard.lacking import Lacking
from app.kube.resources import ObjectKey
from app.slices.dashboard import DashboardSection, Stored


class SectionRows:
    """The objects of one kind; ``lacking`` knows which Pods lack them, where Pods can."""

    def __init__(self, section: DashboardSection[Any], lacking: Lacking | None = None) -> None:
        """No object is known yet."""
        self._section = section
        self._lacking = lacking
        self._objects: dict[ObjectKey, Stored] = {}
        #: Where each row stands, and the row.
        self._rows: dict[ObjectKey, tuple[Any, Any]] = {}
        self._stale: set[ObjectKey] = set()
        self._shown: dict[str, Any] | None = None

    def object_changed(self, key: ObjectKey, stored: Stored | None) -> None:
        """An object is new, changed or (None) gone."""
        self._shown = None
        if stored is None:
            self._objects.pop(key, None)
            self._rows.pop(key, None)
            self._stale.discard(key)
        else:
            self._objects[key] = stored
            self._stale.add(key)

    def lacked_anew(self, names: Iterable[str]) -> None:
        """Other Pods lack the objects of these names, which have no namespace."""
        for name in names:
            if (key := ObjectKey("", name)) in self._objects:
                self._stale.add(key)
                self._shown = None

    def shown(self) -> dict[str, Any]:
        """The fields of the section."""
        if self._shown is None:
            for key in self._stale:
                pods = self._lacking.pods(key.name) if self._lacking is not None else ()
                row = self._section.row(self._objects[key], pods)
                self._rows[key] = self._section.place(row), row
            self._stale.clear()
            first = sections.shown(self._rows.values(), lambda placed: placed[0])
            self._shown = {**first, "items": [row for _, row in first["items"]]}
        return self._shown
