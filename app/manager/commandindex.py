"""Which commands there are, and which module has them: gathered from slices by ``make generate``, shipped as JSON.

A short command must not wait for the import of every kind. It finds here what a person named, and imports that alone.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final

from app.manager.slices import FOLDERS, slices
from app.slices.commands import Verb
from app.slices.verbs import LongVerb

FILE: Final = "commands.json"


def gathered() -> dict[str, Any]:
    """Where the commands about each kind stand, with what a person calls the kind; and each verb, with its help.

    Commands with a name in ``commands.py`` of their slice are found there, without the slice.
    """
    kinds: list[dict[str, Any]] = []
    verbs: dict[str, Any] = {}
    for folder, one in zip(FOLDERS, slices(), strict=True):
        for commands in one.commands():
            kind = commands.kind
            kinds.append(
                {
                    "at": _place(folder, commands),
                    "kind": kind.kind,
                    "group": kind.group,
                    "singular": kind.singular,
                    "words": sorted(commands.words),
                }
            )
        found: tuple[Verb | LongVerb, ...] = (*one.verbs(), *one.long_verbs())
        for verb in found:
            verbs[verb.name] = {"at": _place(folder, verb), "help": verb.help}
    return {"folders": list(FOLDERS), "kinds": kinds, "verbs": verbs}


def _place(folder: str, value: object) -> str:
    """``module:NAME`` of a value, or of the slice that makes it."""
    module = f"{folder}.commands"
    if find_spec(module) is not None:
        for name, found in vars(import_module(module)).items():
            if found is value:
                return f"{module}:{name}"
    return f"{folder}.slice:SLICE"
