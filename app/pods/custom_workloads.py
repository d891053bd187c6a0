"""Custom workload kinds listed in the ConfigMap kruise-configuration: parse the list, and follow its changes.

A list is JSON, ``{"workloads": [{"Group": …, "Version": …, "Kind": …}]}``. Keys match regardless of case, as in Go.
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

#: A group and kind, in any version.
GroupKind: TypeAlias = tuple[str, str]

#: How to give the manager read access to a kind.
HOW_TO_GRANT: Final = f"grant it with a ClusterRole labeled {names.AGGREGATE_TO_MANAGER}=true"
#: Maximum number of kinds; a longer list is a mistake.
MAX_WORKLOADS = 100


class WhitelistError(ValueError):
    """The list cannot be parsed. The message says where and why."""


@dataclass(frozen=True, slots=True)
class ListedKind:
    """A kind on the list. ``version`` is empty if the entry names none."""

    group: str
    version: str
    kind: str

    @property
    def api_version(self) -> str:
        """Group and version as in an object's apiVersion."""
        return f"{self.group}/{self.version}" if self.group else self.version


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of the list. ``at`` is its path."""

    fields: Mapping[str, Any]
    at: str

    @classmethod
    def of(cls, value: Any, at: str) -> Entry:
        """Return the entry for a value. Raises WhitelistError if it is not an object."""
        if not isinstance(value, Mapping):
            raise WhitelistError(f"{at}: expected an object with Group, Version and Kind")
        return cls(value, at)

    @property
    def kind(self) -> ListedKind:
        """The kind that the entry names. Raises WhitelistError if there is none."""
        group, version, kind = (self.text(key) for key in ("Group", "Version", "Kind"))
        if not kind:
            raise WhitelistError(f"{self.at}.Kind: is required")
        return ListedKind(group, version, kind)

    def text(self, key: str) -> str:
        """Return a string member, or '' if it is missing. Raises WhitelistError for any other type."""
        value = member(self.fields, key)
        if value is None:
            return ""
        if not isinstance(value, str):
            raise WhitelistError(f"{self.at}.{key}: expected a string")
        return value

    def entries(self, key: str) -> Iterator[Entry]:
        """Yield the kinds in a list member; none if the member is missing. Raises WhitelistError for any other type."""
        value = member(self.fields, key)
        value = [] if value is None else value
        if not isinstance(value, list) or len(value) > MAX_WORKLOADS:
            raise WhitelistError(f"{self.at}.{key}: expected a list of at most {MAX_WORKLOADS} kinds")
        return (Entry.of(one, f"{self.at}.{key}[{index}]") for index, one in enumerate(value))


def entries(text: str | None, key: str) -> Iterator[Entry]:
    """Yield the workloads listed under ``key`` of the ConfigMap; none if the key is missing. Raises WhitelistError."""
    if not text:
        return iter(())
    where = f"ConfigMap {names.CONFIGURATION_CONFIG_MAP}, key {key}"
    try:
        read = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise WhitelistError(f"{where}: is not valid JSON: {error}") from error
    if not isinstance(read, Mapping):
        raise WhitelistError(f"{where}: expected an object with workloads")
    return Entry(read, where).entries("workloads")


def listed_kinds(text: str | None, key: str) -> Mapping[GroupKind, ListedKind]:
    """Return the kinds listed under ``key`` of the ConfigMap; none if the key is missing. Raises WhitelistError."""
    listed = (entry.kind for entry in entries(text, key))
    return {(one.group, one.kind): one for one in listed}


def member(entry: Mapping[str, Any], key: str) -> Any:
    """Return a member as Go finds it in JSON: by its exact key, else by a key that differs only in case."""
    if key in entry:
        return entry[key]
    return next((value for name, value in entry.items() if name.lower() == key.lower()), None)


class ConfiguredList(Generic[L]):
    """The list under a key of the ConfigMap. While the list is invalid, the last valid one stays in effect."""

    def __init__(
        self, config_maps: Store[ConfigMap], namespace: str, key: str, parse: Callable[[str | None], L]
    ) -> None:
        """``parse`` raises WhitelistError and returns the empty list for None. ``namespace`` is the manager's."""
        self._store = config_maps
        self._namespace = namespace
        self._key = key
        self._parse = parse
        self._text: str | None = None
        self._list = parse(None)

    def __call__(self) -> L:
        found = self._store.get(names.CONFIGURATION_CONFIG_MAP, self._namespace)
        text = (found.data or {}).get(self._key) if found else None
        if text != self._text:
            self._text = text
            try:
                self._list = self._parse(text)
            except WhitelistError as error:
                logger.warning("%s; the previous list stays in effect", error)
        return self._list
