"""Which rules of docs/behaviours each webhook follows: gathered from the sources by ``make generate``, shipped as JSON.

A rule belongs to a webhook if the admission code of its slice, or that of its kinds, cites it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Final

from app.admission import pod, podguard
from app.manager.slices import FOLDERS, slices

FILE: Final = "rules.json"
_RULE: Final = re.compile(r"^- `(?P<id>[A-Z]+-[0-9A-Z]+[a-z]?)` (?!\*\()(?P<text>.+)$", re.MULTILINE)
_CITED: Final = re.compile(r"\b[A-Z]{1,4}-[0-9]+[a-z]?\b")
#: What slices, and kinds' folders of models, call the modules that judge reviews of their own kinds, that change new
#: Pods, and that are asked before a Pod is deleted or changed.
_OWN: Final = re.compile(r"admission|validation|defaults|conflicts|updates|no_effect|stricter")
_STEP: Final = re.compile(r"step|injection|sharing|pod_metadata|revision_choice|resources_policy")
_GUARD: Final = re.compile(r"guard|judgement|resize")


@cache
def rules() -> Mapping[str, Mapping[str, str]]:
    """Path of a webhook → rule id → sentence."""
    found: Mapping[str, Mapping[str, str]] = json.loads((files("app.manager") / FILE).read_text("utf-8"))
    return found


def gathered(root: Path) -> dict[str, dict[str, str]]:
    """The same, from the sources and pages below ``root``."""
    sentences = {
        found["id"]: found["text"]
        for page in sorted((root / "docs" / "behaviours").glob("*.md"))
        for found in _RULE.finditer(page.read_text("utf-8"))
    }
    cited: dict[str, set[str]] = {}
    for module, one in zip(FOLDERS, slices(), strict=True):
        folders = [root / module.replace(".", "/")]
        folders += [root.joinpath(*kind.hub.model.__module__.split(".")[:-1]) for kind in one.kinds]
        own = {webhook.path for part in one.admission for webhook in part.declared(None)}
        guards = {podguard.PATH} if any(part.guarded for part in one.admission) else set()
        for paths, modules in ((own, _OWN), ({pod.MUTATE_POD.path}, _STEP), (guards, _GUARD)):
            ids = set(_cited(folders, modules)) if one.admission else set()
            for path in paths if ids else ():
                cited.setdefault(path, set()).update(ids)
    return {
        path: {id_: sentences[id_] for id_ in sorted(ids, key=_by_number) if id_ in sentences}
        for path, ids in sorted(cited.items())
    }


def _cited(folders: Iterable[Path], modules: re.Pattern[str]) -> Iterable[str]:
    for folder in folders:
        for file in sorted(folder.glob("*.py")):
            if modules.search(file.stem):
                yield from _CITED.findall(file.read_text("utf-8"))


def _by_number(id_: str) -> tuple[str, int, str]:
    prefix, _, number = id_.partition("-")
    return prefix, int(re.sub(r"\D", "", number) or 0), id_
