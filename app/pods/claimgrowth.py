"""Claims that are to be as large as their templates: which differ, which may grow, which have grown (AS-103 … AS-106).
Pure.

A pair is the template of a claim and the claim.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from app.kube.objects import PersistentVolumeClaim
from app.kube.quantities import QuantityError, parse

Pairs: TypeAlias = Iterable[tuple[Mapping[str, Any], PersistentVolumeClaim]]
#: The annotation of a claim that a workload makes grow: the name of that workload.
GROWN_BY: Final = "apps.kruise.io/owned-by-asts"
_RESIZE_PENDING: Final = "FileSystemResizePending"
_STORAGE: Final = "storage"


@dataclass(frozen=True, slots=True)
class ClaimState:
    """The claims of one Pod. ``compatible``: none asks for less than its template; ``completed``: none is still to grow
    save at the next mount; ``pending``: some is, at that mount; ``ready``: each has got what it asks for."""

    compatible: bool = True
    completed: bool = True
    pending: bool = False
    ready: bool = True


@dataclass(frozen=True, slots=True)
class Growth:
    """A claim that asks for less than its template. ``patch``: what makes it ask for as much; None: it differs in more
    than its size, and only its user can help (AS-104)."""

    claim: PersistentVolumeClaim
    storage_class: str
    patch: dict[str, Any] | None


def claim_state(pairs: Pairs) -> ClaimState:
    """AS-103, AS-105: of claims that are there and stay."""
    compatible, completed, pending, all_ready = True, True, False, True
    for template, claim in pairs:
        waits = any(one.type == _RESIZE_PENDING and one.status == "True" for one in claim.status.conditions)
        ready = is_grown(claim)
        all_ready = all_ready and ready
        compatible = compatible and is_compatible(template, claim)
        completed = completed and (ready or waits)
        pending = pending or (not ready and waits)
    return ClaimState(compatible, completed and compatible, pending and completed and compatible, all_ready)


def growths(pairs: Pairs, workload: str) -> list[Growth]:
    """AS-104: the claims that are to grow. ``workload``: the name of whoever makes them."""
    found = []
    for template, claim in pairs:
        if is_compatible(template, claim):
            continue
        patch = None
        if _is_alike(template, claim):
            resources = (template.get("spec") or {}).get("resources") or {}
            patch = {
                "metadata": {"uid": claim.metadata.uid, "annotations": {GROWN_BY: workload}},
                "spec": {"resources": resources},
            }
        found.append(Growth(claim, claim.spec.storage_class_name or "", patch))
    return found


def is_compatible(template: Mapping[str, Any], claim: PersistentVolumeClaim) -> bool:
    """AS-106: whether the claim is like its template and asks for no less."""
    requests = ((template.get("spec") or {}).get("resources") or {}).get("requests") or {}
    return _is_alike(template, claim) and _at_least(claim.spec.resources.requests, requests.get(_STORAGE))


def is_grown(claim: PersistentVolumeClaim) -> bool:
    """Whether the claim has got as much as it asks for."""
    return _at_least(claim.status.capacity, claim.spec.resources.requests.get(_STORAGE))


def _is_alike(template: Mapping[str, Any], claim: PersistentVolumeClaim) -> bool:
    """Whether the claim differs from its template by its size at most; a class that one does not name is no
    difference."""
    spec = template.get("spec") or {}
    wanted, present = spec.get("storageClassName"), claim.spec.storage_class_name
    same_class = not wanted or not present or wanted == present
    return same_class and list(spec.get("accessModes") or ()) == list(claim.spec.access_modes)


def _at_least(present: Mapping[str, str], wanted: Any) -> bool:
    if wanted is None or present.get(_STORAGE) == wanted:
        return True
    try:
        return parse(present.get(_STORAGE, "0")) >= parse(wanted)
    except QuantityError:
        return False
