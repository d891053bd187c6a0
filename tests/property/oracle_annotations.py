"""Annotations of an injected Pod: metadata patches (SS-53) and records of its sets (SS-56 to SS-59, SS-79)."""

from __future__ import annotations

import json

from tests.property.branches import Branches
from tests.property.case import NOW, Json
from tests.property.oracle_basics import (
    HASH,
    HASH_WITHOUT_IMAGE,
    INJECTED_LIST,
    WORKING,
    Applied,
    Refused,
    State,
    is_hot,
    merge_patch,
    read_hashes,
    sorted_json,
)


class Annotations:
    def __init__(self, state: State) -> None:
        self.state = state

    def patch_annotation(self, policy: str, key: str, text: str) -> None:
        """Apply one metadata patch. [SS-53]"""
        present, value = key in self.state.annotations, self.state.annotations.get(key)
        if policy == "Retain":
            self.state.branches.hit("SS-53 retain keeps" if present else "SS-53 retain adds")
            if not present:
                self.state.annotate(key, text)
        elif policy == "Overwrite":
            self.state.branches.hit("SS-53 overwrite replaces" if present else "SS-53 overwrite adds")
            self.state.annotate(key, text)
        elif not value:
            self.state.branches.hit("SS-53 merge into empty" if present else "SS-53 merge into missing")
            self.state.annotate(key, text)
        elif value == text:
            # D-21: an unchanged value stays as written, even if a merge would write it differently.
            self.state.branches.hit("SS-53 merged already")
        else:
            self.merge_annotation(key, value, text)

    def merge_annotation(self, key: str, value: str, text: str) -> None:
        try:
            target = json.loads(value)
        except ValueError:
            raise Refused("SS-53 pod value not JSON refused") from None
        try:
            patch = json.loads(text)
        except ValueError:
            raise Refused("SS-53 patch not JSON refused") from None
        self.state.branches.hit("SS-53 merge")
        merged = merge_patch(target, patch)
        if isinstance(target, dict) and isinstance(merged, dict) and set(target) - set(merged):
            self.state.branches.hit("SS-53 merge removes a key")
        if merged == target:
            # D-21: nothing changes, so nothing is rewritten.
            self.state.branches.hit("SS-53 merged already")
            return
        self.state.annotate(key, json.dumps(merged, separators=(",", ":"), sort_keys=True, ensure_ascii=False))

    def invalid_but_unread(self) -> None:
        try:
            read_hashes(self.state.annotations.get(HASH), Branches())
        except ValueError:
            self.state.branches.hit("SS-59 invalid but nothing injected")

    def write_annotations(self, sets: list[Applied], working: Json) -> None:
        """Write the records of the sets. [SS-56 … SS-58, SS-79]"""
        hashes = read_hashes(self.state.annotations.get(HASH), self.state.branches)
        without_image = read_hashes(self.state.annotations.get(HASH_WITHOUT_IMAGE), Branches())
        if set(hashes) - {s.name for s in sets}:
            self.state.branches.hit("SS-57 entries kept")
        for one in sets:
            entry = {"updateTimestamp": NOW, "hash": one.hash, "sidecarSetName": one.name}
            entry["sidecarList"] = self.sidecar_list(one)
            without_image[one.name] = {**entry, "hash": one.hash_without_image}
            hashes[one.name] = {**entry, "controllerRevision": one.revision} if one.revision else entry
            self.state.branches.hit("SS-57 controllerRevision" if one.revision else "SS-57 controllerRevision omitted")
        self.state.annotate(HASH, sorted_json(hashes))
        self.state.annotate(HASH_WITHOUT_IMAGE, sorted_json(without_image))
        names = {n for n in (self.state.annotations.get(INJECTED_LIST) or "").split(",") if n}
        merged = names - {s.name for s in sets}
        self.state.branches.hit("SS-56 merged with names in the annotation" if merged else "SS-56 new list")
        self.state.annotate(INJECTED_LIST, ",".join(sorted(names | {s.name for s in sets})))
        if working:
            present = json.loads(self.state.annotations.get(WORKING) or "{}")
            self.state.annotate(WORKING, sorted_json({**present, **working}))

    def sidecar_list(self, one: Applied) -> list[str]:
        containers, inits = one.lists()
        names = [c["name"] for c in containers]
        if names:
            self.state.branches.hit("SS-58 containers")
        if any(is_hot(c) for c in containers):
            self.state.branches.hit("SS-58 base name of a pair")
        for container in inits:
            if container.get("restartPolicy") == "Always":
                self.state.branches.hit("SS-58 restartable init container")
                names.append(container["name"])
            else:
                self.state.branches.hit("SS-58 plain init container left out")
        if not names:
            self.state.branches.hit("SS-58 empty")
        return sorted(names)
