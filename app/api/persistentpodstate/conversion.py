"""PersistentPodState between its versions: one name differs (PPS-1)."""

from __future__ import annotations

from typing import Any


def to_v1beta1(obj: dict[str, Any]) -> dict[str, Any]:
    """nodeTopologyKeys become keys."""
    return _renamed(obj, "nodeTopologyKeys", "keys")


def to_v1alpha1(obj: dict[str, Any]) -> dict[str, Any]:
    """And back."""
    return _renamed(obj, "keys", "nodeTopologyKeys")


def _renamed(obj: dict[str, Any], old: str, new: str) -> dict[str, Any]:
    spec = obj.get("spec")
    if isinstance(spec, dict):
        preferred = spec.get("preferredPersistentTopology")
        terms = [one.get("preference") for one in preferred or () if isinstance(one, dict)]
        for term in (spec.get("requiredPersistentTopology"), *terms):
            if isinstance(term, dict) and old in term:
                term[new] = term.pop(old)
    return obj
