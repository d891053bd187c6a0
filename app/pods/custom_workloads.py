"""Further kinds of workloads that an operator lists in the ConfigMap kruise-configuration: reading such a list, and
following it.

A list is JSON, ``{"workloads": [{"Group": …, "Version": …, "Kind": …}]}``. Keys count whatever their case, as Go reads
them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeAlias, TypeVar

import orjson

from app.api import names
from app.kube.objects import ConfigMap
from app.kube.store import Store

logger = logging.getLogger(__name__)

L = TypeVar("L")

#: A kind, whatever its version: its group and name.
GroupKind: TypeAlias = tuple[str, str]

#: What to do where the manager may not read a kind.
HOW_TO_GRANT: Final = f"grant it by a ClusterRole with label {names.AGGREGATE_TO_MANAGER}=true"
#: More than that many kinds are a mistake.
MAX_WORKLOADS = 100


class WhitelistError(ValueError):
    """The list cannot be read. The text says where and why."""


@dataclass(frozen=True, slots=True)
class ListedKind:
    """A kind on the list. ``version`` is empty where the operator named none."""

    group: str
    version: str
    kind: str

    @property
    def api_version(self) -> str:
        """Group and version, as objects name them."""
        return f"{self.group}/{self.version}" if self.group else self.version


@dataclass(frozen=True, slots=True)
class Entry:
    """One of a list of workloads. ``at`` says where it stands."""

    fields: Mapping[str, Any]
    at: str

    @classmethod
    def of(cls, value: Any, at: str) -> Entry:
        """Raises WhitelistError for what is no object."""
        if not isinstance(value, Mapping):
            raise WhitelistError(f"{at}: expected an object with Group, Version and Kind")
        return cls(value, at)

    @property
    def kind(self) -> ListedKind:
        """Raises WhitelistError for an entry that names none."""
        group, version, kind = (self.text(key) for key in ("Group", "Version", "Kind"))
        if not kind:
            raise WhitelistError(f"{self.at}.Kind: is required")
        return ListedKind(group, version, kind)

    def text(self, key: str) -> str:
        """A member that is text; empty without it. Raises WhitelistError for anything else."""
        value = member(self.fields, key)
        if value is None:
            return ""
        if not isinstance(value, str):
            raise WhitelistError(f"{self.at}.{key}: expected a string")
        return value

    def entries(self, key: str) -> Iterator[Entry]:
        """A member that is a list of kinds; none without it. Raises WhitelistError for anything else."""
        value = member(self.fields, key)
        value = [] if value is None else value
        if not isinstance(value, list) or len(value) > MAX_WORKLOADS:
            raise WhitelistError(f"{self.at}.{key}: expected a list of at most {MAX_WORKLOADS} kinds")
        return (Entry.of(one, f"{self.at}.{key}[{index}]") for index, one in enumerate(value))


def entries(text: str | None, key: str) -> Iterator[Entry]:
    """The workloads on the list that the ConfigMap has under ``key``; none without one. Raises WhitelistError."""
    if not text:
        return iter(())
    where = f"ConfigMap {names.CONFIGURATION_CONFIG_MAP}, key {key}"
    try:
        read = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise WhitelistError(f"{where}: is no JSON: {error}") from error
    if not isinstance(read, Mapping):
        raise WhitelistError(f"{where}: expected an object with workloads")
    return Entry(read, where).entries("workloads")


def listed_kinds(text: str | None, key: str) -> Mapping[GroupKind, ListedKind]:
    """The kinds on the list that the ConfigMap has under ``key``; none without one. Raises WhitelistError."""
    listed = (entry.kind for entry in entries(text, key))
    return {(one.group, one.kind): one for one in listed}


def member(entry: Mapping[str, Any], key: str) -> Any:
    """As Go reads JSON: whatever the case of the key, but the exact one first."""
    if key in entry:
        return entry[key]
    return next((value for name, value in entry.items() if name.lower() == key.lower()), None)


class ConfiguredList(Generic[L]):
    """The list under a key of the ConfigMap as it is now; one that cannot be read leaves the last good one in force."""

    def __init__(
        self, config_maps: Store[ConfigMap], namespace: str, key: str, parse: Callable[[str | None], L]
    ) -> None:
        """``parse`` raises WhitelistError; without a text it returns the empty list. ``namespace``: the manager's."""
        self._store = config_maps
        self._namespace = namespace
        self._key = key
        self._parse = parse
        self._text: str | None = None
        self._list = parse(None)

    def __call__(self) -> L:
        """The list."""
        found = self._store.get(names.CONFIGURATION_CONFIG_MAP, self._namespace)
        text = (found.data or {}).get(self._key) if found else None
        if text != self._text:
            self._text = text
            try:
                self._list = self._parse(text)
            except WhitelistError as error:
                logger.warning("%s; the former list stays in force", error)
        return self._list
