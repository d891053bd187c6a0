"""Kind definition of PersistentPodState: versions and conversion."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from app.api import names
from app.api.kind import Access, KindDefinition, Version
from app.features.persistentpodstate.types import PersistentPodState, PersistentPodStateV1Alpha1

# Conversion: one field has a different name in v1alpha1, and an empty list of keys is omitted. [PPS-1]

_OLDER = "nodeTopologyKeys"
_NEWER = "keys"


def to_v1beta1(obj: dict[str, Any]) -> dict[str, Any]:
    """Rename nodeTopologyKeys to keys."""
    return _renamed(obj, _OLDER, _NEWER)


def to_v1alpha1(obj: dict[str, Any]) -> dict[str, Any]:
    """Rename keys to nodeTopologyKeys."""
    return _renamed(obj, _NEWER, _OLDER)


def canonical(obj: dict[str, Any]) -> dict[str, Any]:
    """Omit empty lists of keys."""
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


PERSISTENT_POD_STATE: Final = KindDefinition(
    group=names.APPS_GROUP,
    kind="PersistentPodState",
    plural="persistentpodstates",
    access=Access("adds node affinity to new Pods in its namespace", view=True, edit=True),
    versions=(
        Version(names.V1BETA1, PersistentPodState, canonical=canonical),
        Version(
            names.V1ALPHA1,
            PersistentPodStateV1Alpha1,
            to_hub=to_v1beta1,
            from_hub=to_v1alpha1,
            canonical=canonical,
        ),
    ),
)
