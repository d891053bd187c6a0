"""Compares our webhooks with recorded answers of OpenKruise: the cases in tests/data/openkruise/samples-KIND.json.

A case has a manifest, whether it was accepted or the error message, the object as created and as read in each version,
and an update of the spec with its result. The recording has no uids or times.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from app.api.conversion import convert
from app.api.kind import KindDefinition
from app.kube.admission import Handler
from tests.admission.writing import written

Json = dict[str, Any]
DATA: Final = Path(__file__).parents[1] / "data" / "openkruise"
#: Recorded messages were cut to this many characters.
RECORDED_LENGTH: Final = 400
_LEFT_OUT = frozenset(
    {
        "status",
        "creationTimestamp",
        "uid",
        "generation",
        "resourceVersion",
        "managedFields",
        "kruise.io/conversion-data",
    }
)


def cases(name: str) -> list[Json]:
    found: list[Json] = json.loads((DATA / f"samples-{name}.json").read_text("utf-8"))
    return found


def names_of(found: Sequence[Json]) -> list[str]:
    return [case["manifest"]["metadata"]["name"] for case in found]


def as_read(kind: KindDefinition, obj: Json, api_version: str) -> Json:
    """Return a stored object as read in a version, without fields that were not recorded."""
    hub = f"{kind.group}/{kind.hub.name}"
    stored = obj if obj["apiVersion"] == hub else convert(obj, hub)
    found: Json = comparable(stored if api_version == hub else convert(stored, api_version))
    return found


def judged(refusal: str, ok: bool, message: str) -> None:
    """Compare a decision with the recorded one. ``refusal``: what kubectl prints, empty for an accepted object."""
    assert refusal[:RECORDED_LENGTH] == message
    assert (not refusal) is ok


def comparable(value: Any) -> Any:
    """Return an object without fields that were not recorded."""
    if isinstance(value, dict):
        kept = {key: comparable(item) for key, item in value.items() if key not in _LEFT_OUT}
        if kept.get("annotations") == {}:
            del kept["annotations"]
        return kept
    return [comparable(item) for item in value] if isinstance(value, list) else value


def read_alike(ours: dict[str, Any], recorded: dict[str, Any]) -> None:
    """Compare an object, as read, with the recorded one."""
    assert comparable(ours) == recorded


def _says(shown: str, recorded: str, words: int, exact: bool) -> bool:
    """Return whether a rejection is worded as by OpenKruise; unless ``exact``, a suggested fix may follow."""
    if exact:
        return shown[:words] == recorded[:words]
    before = recorded[:words].removesuffix("]")
    return shown.startswith(before) if recorded else not shown


def hold_against(
    kind: KindDefinition, handlers: Sequence[Handler], case: Json, *, words: int = RECORDED_LENGTH, exact: bool = False
) -> None:
    """Create and update the object of the case, and compare answers and objects. ``words``: number of characters of a
    rejection that must match."""
    manifest = case["manifest"]
    created = written(kind, handlers, manifest)
    assert _says(created.shown, case["message"], words, exact)
    assert (created.obj is not None) is case["ok"]
    if created.obj is None:
        return
    assert as_read(kind, created.obj, manifest["apiVersion"]) == comparable(case["created"])
    for version in kind.versions:
        if version.name in case:
            assert as_read(kind, created.obj, f"{kind.group}/{version.name}") == comparable(case[version.name])
    update = case.get("update")
    if not update:
        return
    updated = written(kind, handlers, {**manifest, "spec": update["manifest"]}, created.obj)
    assert _says(updated.shown, update["message"], words, exact)
    assert (updated.obj is not None) is update["ok"]
    if updated.obj is not None:
        assert as_read(kind, updated.obj, manifest["apiVersion"]) == comparable(update["result"])
