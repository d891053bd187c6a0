"""Which kinds and verbs slices bring, without importing a slice; ``app.manager.commandindex`` writes it down."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from app.slices.commands import Commands

_FILE: Final = Path(__file__).resolve().parent.parent / "manager" / "commands.json"


@cache
def _index() -> Mapping[str, Mapping[str, Any]]:
    found: Mapping[str, Mapping[str, Any]] = json.loads(_FILE.read_text("utf-8"))
    return found


def kinds() -> Mapping[str, Mapping[str, Any]]:
    """Where the commands about a kind stand → what it is called."""
    return _index()["kinds"]


def verbs() -> Mapping[str, Mapping[str, str]]:
    """Name of a verb → where it stands, and its help."""
    return _index()["verbs"]


def at(place: str) -> Any:
    """What stands there."""
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)


def commands_called(word: str) -> Commands | None:
    """The commands of the kind that a person calls so."""
    return _commands(lambda one: word in one["words"])


def commands_for(group: str, kind: str) -> Commands | None:
    """The commands of a kind by its name."""
    return _commands(lambda one: (one["group"], one["kind"]) == (group, kind))


def _commands(meant: Callable[[Mapping[str, Any]], bool]) -> Commands | None:
    found: Commands | None = next((at(place) for place, one in kinds().items() if meant(one)), None)
    return found
