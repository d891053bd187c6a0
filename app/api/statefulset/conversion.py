"""Advanced StatefulSet between its versions (AS-1 … AS-4).

v1alpha1 leaves out what it has no fields for; app.api.conversion notices and remembers it (AS-137).
"""

from __future__ import annotations

from typing import Any, Final

#: Fields that v1alpha1 does not have.
SPEC_FIELDS: Final = (
    "volumeClaimUpdateStrategy",
    "reserveOrdinals",
    "lifecycle",
    "scaleStrategy",
    "persistentVolumeClaimRetentionPolicy",
    "ordinals",
)
STATUS_FIELDS: Final = ("updatedReadyReplicas", "updatedAvailableReplicas", "volumeClaims")


def to_v1beta1(obj: dict[str, Any]) -> dict[str, Any]:
    """AS-1: all that v1alpha1 says is said in the same words; a block that Go prints though it is empty is there."""
    spec = obj.get("spec")
    if isinstance(spec, dict):
        spec.setdefault("volumeClaimUpdateStrategy", {})
    return obj


def to_v1alpha1(obj: dict[str, Any]) -> dict[str, Any]:
    """AS-1, AS-2."""
    for part, fields in (("spec", SPEC_FIELDS), ("status", STATUS_FIELDS)):
        found = obj.get(part)
        if isinstance(found, dict):
            for field in fields:
                found.pop(field, None)
    return obj
