"""PersistentPodState between its versions: one name differs, and an empty list of keys is left out (PPS-1)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

_OLDER = "nodeTopologyKeys"
_NEWER = "keys"


def to_v1beta1(obj: dict[str, Any]) -> dict[str, Any]:
    """Rename nodeTopologyKeys to keys."""
    return _renamed(obj, _OLDER, _NEWER)


def to_v1alpha1(obj: dict[str, Any]) -> dict[str, Any]:
    """Rename keys to nodeTopologyKeys."""
    return _renamed(obj, _NEWER, _OLDER)


def canonical(obj: dict[str, Any]) -> dict[str, Any]:
    """Leave out empty lists of keys."""
    for term in _terms(obj):
        for name in (_OLDER, _NEWER):
            if term.get(name) == []:
                del term[name]
    return obj


def _renamed(obj: dict[str, Any], old: str, new: str) -> dict[str, Any]:
    for term in _terms(canonical(obj)):
        if old in term:
            term[new] = term.pop(old)
    return obj


def _terms(obj: dict[str, Any]) -> Iterator[dict[str, Any]]:
    spec = obj.get("spec")
    if isinstance(spec, dict):
        preferred = spec.get("preferredPersistentTopology")
        terms = [one.get("preference") for one in preferred or () if isinstance(one, dict)]
        yield from (term for term in (spec.get("requiredPersistentTopology"), *terms) if isinstance(term, dict))
