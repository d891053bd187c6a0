"""Indexes that are generated and shipped as JSON: commands by kind, and rules by webhook."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import import_module
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from app.admission import pods
from app.framework.commands import Verb
from app.framework.verbs import LongVerb
from app.manager.features import FOLDERS, features

# Which commands there are, and which module has them: gathered from features by ``make generate``, shipped as JSON.
#
# A short command must not wait for the import of every kind. It finds here what a person named, and imports that
# alone.

COMMANDS_FILE: Final = "commands.json"


def gathered_commands() -> dict[str, Any]:
    """Where the commands about each kind stand, with what a person calls the kind; and each verb, with its help.

    Commands with a name in ``commands.py`` of their feature are found there, without the feature.
    """
    kinds: list[dict[str, Any]] = []
    verbs: dict[str, Any] = {}
    for folder, one in zip(FOLDERS, features(), strict=True):
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
    """``module:NAME`` of a value, or of the feature that makes it."""
    module = f"{folder}.commands"
    if find_spec(module) is not None:
        for name, found in vars(import_module(module)).items():
            if found is value:
                return f"{module}:{name}"
    return f"{folder}.feature:FEATURE"


# Which rules of docs/behaviours each webhook follows: gathered from the sources by ``make generate``, shipped as JSON.
#
# A rule belongs to a webhook if the admission code of its feature, or that of its kinds, cites it.

RULES_FILE: Final = "rules.json"
_RULE: Final = re.compile(r"^- `(?P<id>[A-Z]+-[0-9A-Z]+[a-z]?)` (?!\*\()(?P<text>.+)$", re.MULTILINE)
_CITED: Final = re.compile(r"\b[A-Z]{1,4}-[0-9]+[a-z]?\b")
#: What features, and kinds' folders of models, call the modules that judge reviews of their own kinds, that change new
#: Pods, and that are asked before a Pod is deleted or changed.
_OWN: Final = re.compile(r"^(webhooks|validation|conflicts|kind)$")
_STEP: Final = re.compile(r"^(pod_admission|inject|metadata|prepared|resources)$")
_GUARD: Final = re.compile(r"^(pod_admission|judgement)$")


@cache
def rules() -> Mapping[str, Mapping[str, str]]:
    """Path of a webhook → rule id → sentence."""
    found: Mapping[str, Mapping[str, str]] = json.loads((files("app.manager") / RULES_FILE).read_text("utf-8"))
    return found


def gathered_rules(root: Path) -> dict[str, dict[str, str]]:
    """The same, from the sources and pages below ``root``."""
    sentences = {
        found["id"]: found["text"]
        for page in sorted((root / "docs" / "behaviours").glob("*.md"))
        for found in _RULE.finditer(page.read_text("utf-8"))
    }
    cited: dict[str, set[str]] = {}
    for module, one in zip(FOLDERS, features(), strict=True):
        folder = root / module.replace(".", "/")
        own = {webhook.path for part in one.admission for webhook in part.declared(None)}
        guards = {pods.PATH} if any(part.guarded for part in one.admission) else set()
        for paths, modules in ((own, _OWN), ({pods.MUTATE_POD.path}, _STEP), (guards, _GUARD)):
            ids = set(_cited(folder, modules)) if one.admission else set()
            for path in paths if ids else ():
                cited.setdefault(path, set()).update(ids)
    return {
        path: {id_: sentences[id_] for id_ in sorted(ids, key=_by_number) if id_ in sentences}
        for path, ids in sorted(cited.items())
    }


def _cited(folder: Path, modules: re.Pattern[str]) -> Iterable[str]:
    for file in sorted(folder.rglob("*.py")):
        if modules.search(file.stem):
            text = file.read_text("utf-8")
            yield from _CITED.findall(_defaulting(text) if file.stem == "kind" else text)


def _defaulting(text: str) -> str:
    """Return the functions of a ``kind`` module that set defaults: webhooks follow their rules, not those of
    conversion."""
    defined = {node.name: node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)}
    found = [name for name in defined if "default" in name]
    for name in found:
        called = {one.id for one in ast.walk(defined[name]) if isinstance(one, ast.Name)}
        found += [other for other in defined if other in called and other not in found]
    return "\n".join(ast.get_source_segment(text, defined[name]) or "" for name in found)


def _by_number(id_: str) -> tuple[str, int, str]:
    prefix, _, number = id_.partition("-")
    return prefix, int(re.sub(r"\D", "", number) or 0), id_
