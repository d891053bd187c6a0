"""Which kinds and verbs slices bring, without importing a slice; ``app.manager.commandindex`` writes it down."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from app.manager.slices import FOLDERS

if TYPE_CHECKING:
    from app.slices.commands import Commands, Verb
    from app.slices.verbs import LongVerb

_FILE: Final = Path(__file__).resolve().parent.parent / "manager" / "commands.json"


@cache
def _index() -> Mapping[str, Any]:
    found: Mapping[str, Any] = json.loads(_FILE.read_text("utf-8"))
    if found["folders"] == FOLDERS:
        return found
    # Somebody adds a slice, and has not generated anything yet.
    from app.manager.commandindex import gathered

    return gathered()


def kinds() -> Sequence[Mapping[str, Any]]:
    """The kinds that have commands: what they are called, and where the commands stand."""
    found: Sequence[Mapping[str, Any]] = _index()["kinds"]
    return found


def verbs() -> Mapping[str, Mapping[str, str]]:
    """Name of a verb → where it stands, and its help."""
    found: Mapping[str, Mapping[str, str]] = _index()["verbs"]
    return found


def verb_called(name: str) -> Verb | LongVerb:
    """The verb of this name, which there is."""
    found: Any = _at(verbs()[name]["at"])
    if hasattr(found, "long_verbs"):
        found = next(one for one in (*found.verbs(), *found.long_verbs()) if one.name == name)
    made: Verb | LongVerb = found
    return made


def commands_of(entry: Mapping[str, Any]) -> Commands:
    """The commands of one of ``kinds()``."""
    found: Any = _at(entry["at"])
    if hasattr(found, "long_verbs"):
        found = next(one for one in found.commands() if one.kind.kind == entry["kind"])
    made: Commands = found
    return made


def commands_called(word: str) -> Commands | None:
    """The commands of the kind that a person calls so."""
    return _first(lambda one: word in one["words"])


def commands_for(group: str, kind: str) -> Commands | None:
    """The commands of a kind by its name."""
    return _first(lambda one: (one["group"], one["kind"]) == (group, kind))


def _first(meant: Callable[[Mapping[str, Any]], bool]) -> Commands | None:
    return next((commands_of(one) for one in kinds() if meant(one)), None)


def _at(place: str) -> Any:
    """What stands in ``module:NAME``: commands or a verb, or the slice that makes them."""
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)
