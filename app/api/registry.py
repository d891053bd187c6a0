"""The kinds that conversion and the command line know. The list of slices fills it (``app.manager.slices``)."""

from __future__ import annotations

from collections.abc import Iterable

from app.api.kind import KindDefinition

_KINDS: dict[tuple[str, str], KindDefinition] = {}


def register(kinds: Iterable[KindDefinition]) -> None:
    """Know these kinds from now on. Raises ValueError for two kinds of one name in one group."""
    for kind in kinds:
        if _KINDS.setdefault((kind.group, kind.kind), kind) is not kind:
            raise ValueError(f"{kind.kind}.{kind.group}: two slices have a kind of this name")


def known_kinds() -> tuple[KindDefinition, ...]:
    """All kinds registered so far."""
    return tuple(_KINDS.values())


def find_plural(group: str, plural: str) -> KindDefinition | None:
    """The kind whose objects are called so in URLs."""
    return next((kind for kind in _KINDS.values() if (kind.group, kind.plural) == (group, plural)), None)


def find_kind(api_version: str, kind: str) -> KindDefinition | None:
    """The kind of this name in the group of ``api_version``, whatever the version."""
    return _KINDS.get((api_version.rpartition("/")[0], kind))
