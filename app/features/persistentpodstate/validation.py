"""Validation of PersistentPodStates. [PPS-3 … PPS-7, PPS-40]

Pure: the other objects in the namespace and the kinds in the operator's whitelist are arguments.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Final

from app.api import names
from app.features.persistentpodstate.types import PersistentPodState, PersistentPodStateSpec, TargetReference
from app.features.statefulset.kind import STATEFUL_SET
from app.kube.fielderrors import FieldError, GoLiteral, Path, forbidden, invalid, quote, too_many
from app.kube.resources import STATEFULSETS
from app.kube.validation import is_qualified_name

SPEC: Final = Path("spec")
TARGET: Final = SPEC.child("targetRef")
#: Target kinds that are allowed without an entry in the operator's whitelist. [PPS-4]
KNOWN_TARGETS: Final = {(one.group, one.kind): one for one in (STATEFULSETS, STATEFUL_SET.resource())}
#: Weights that the API server accepts in a Pod's preferred terms.
LEAST_WEIGHT: Final = 1
MOST_WEIGHT: Final = 100
#: Maximum number of topology keys and annotation keys. All of them are read from every Pod and node.
MAX_KEYS: Final = 256
#: Maximum number of errors and of warnings reported for an object.
MAX_REPORTED: Final = 20


def state_errors(
    state: PersistentPodState,
    former: PersistentPodState | None,
    others: Iterable[PersistentPodState],
    custom: Collection[tuple[str, str]],
    *,
    v1alpha1: bool,
) -> list[FieldError]:
    """Return all errors.

    ``others`` are the PersistentPodStates in the namespace, possibly including this one. ``custom`` holds the (group,
    kind) of each additional target kind. ``v1alpha1`` selects that version's field names.
    """
    errors = target_errors(state.spec.target_ref, custom)
    if state.spec.required_persistent_topology is None and not state.spec.preferred_persistent_topology:
        detail = "requiredPersistentTopology or preferredPersistentTopology is required for PersistentPodState."
        errors.append(invalid(SPEC, _go_spec(state.spec), detail))
    if former is not None and former.spec.target_ref != state.spec.target_ref:
        errors.append(forbidden(TARGET, "targetRef is immutable"))
    errors += conflict_errors(state, others)
    errors += topology_errors(state.spec, former.spec if former is not None else None, v1alpha1=v1alpha1)
    return errors


def target_errors(target: TargetReference, custom: Collection[tuple[str, str]]) -> list[FieldError]:
    """Return the errors in targetRef. [PPS-3, PPS-4]"""
    errors = []
    if not (target.api_version and target.kind and target.name):
        errors.append(invalid(TARGET, target.as_go(), "empty targetRef is not valid for PersistentPodState."))
    group_kind = target.group_kind
    if group_kind not in KNOWN_TARGETS and group_kind not in custom:
        key = names.PPS_CUSTOM_WORKLOAD_WHITELIST_KEY
        errors.append(invalid(TARGET, target.as_go(), f"targetRef.Kind must be StatefulSet or in {key}"))
    return errors


def conflict_errors(state: PersistentPodState, others: Iterable[PersistentPodState]) -> list[FieldError]:
    """Return an error if another PersistentPodState has the same target. [PPS-7]"""
    target = state.spec.target_ref
    for other in others:
        if other.name != state.name and not other.deleting and other.spec.target_ref.identity == target.identity:
            detail = f"pps.spec.targetRef is in conflict with other PersistentPodState {other.name}"
            return [invalid(TARGET, target.as_go(), f"{detail}: change or delete that one")]
    return []


def topology_errors(
    spec: PersistentPodStateSpec, former: PersistentPodStateSpec | None, *, v1alpha1: bool = False
) -> list[FieldError]:
    """Return the errors in weights and topology keys. Values that are already stored are accepted. [PPS-40]"""
    errors: list[FieldError] = []
    known_weights = {one.weight for one in former.preferred_persistent_topology or ()} if former is not None else set()
    count = sum(1 for _ in _keys(spec, v1alpha1=v1alpha1)) + len(spec.persistent_pod_annotations or ())
    if count > MAX_KEYS:
        return [too_many(SPEC, count, MAX_KEYS)]
    known_keys = {key for _, key in _keys(former, v1alpha1=v1alpha1)} if former is not None else set()
    for index, term in enumerate(spec.preferred_persistent_topology or ()):
        if not LEAST_WEIGHT <= term.weight <= MOST_WEIGHT and term.weight not in known_weights:
            at = SPEC.child("preferredPersistentTopology").index(index).child("weight")
            errors.append(invalid(at, term.weight, f"must be in the range {LEAST_WEIGHT}-{MOST_WEIGHT}"))
    for at, key in _keys(spec, v1alpha1=v1alpha1):
        if key not in known_keys:
            errors += (invalid(at, key, text) for text in is_qualified_name(key))
        if len(errors) >= MAX_REPORTED:
            break
    return errors


def warnings(state: PersistentPodState, *, v1alpha1: bool = False) -> tuple[str, ...]:
    """Return warnings about settings that are accepted but have no effect."""
    found: list[str] = []
    for at, keys in _terms(state.spec, v1alpha1=v1alpha1):
        if not keys:
            found.append(f"{at}: has no effect without keys")
    for index, one in enumerate(state.spec.persistent_pod_annotations or ()):
        if is_qualified_name(one.key.lower()):
            at = SPEC.child("persistentPodAnnotations").index(index).child("key")
            found.append(f"{at}: {quote(one.key)} is not a valid annotation key; it has no effect")
    return tuple(found[:MAX_REPORTED])


def _terms(spec: PersistentPodStateSpec, *, v1alpha1: bool) -> Iterator[tuple[Path, list[str]]]:
    name = "nodeTopologyKeys" if v1alpha1 else "keys"
    if spec.required_persistent_topology is not None:
        yield SPEC.child("requiredPersistentTopology", name), spec.required_persistent_topology.keys
    for index, term in enumerate(spec.preferred_persistent_topology or ()):
        at = SPEC.child("preferredPersistentTopology").index(index)
        yield at.child("preference", name), term.preference.keys


def _keys(spec: PersistentPodStateSpec, *, v1alpha1: bool) -> Iterator[tuple[Path, str]]:
    for at, keys in _terms(spec, v1alpha1=v1alpha1):
        for index, key in enumerate(keys):
            yield at.index(index), key


def _go_spec(spec: PersistentPodStateSpec) -> GoLiteral:
    """Return a spec without any topology, formatted like Go's ``%#v``."""
    kind = "[]v1beta1.PersistentPodAnnotation"
    listed = spec.persistent_pod_annotations
    given = ", ".join(
        f"v1beta1.PersistentPodAnnotation{{Key:{quote(one.key)}}}" for one in (listed or ())[:MAX_REPORTED]
    )
    annotations = f"{kind}(nil)" if listed is None else f"{kind}{{{given}}}"
    preferred = "(nil)" if spec.preferred_persistent_topology is None else "{}"
    return GoLiteral(
        f"v1beta1.PersistentPodStateSpec{{TargetReference:{spec.target_ref.as_go()}, "
        f"PersistentPodAnnotations:{annotations}, RequiredPersistentTopology:(*v1beta1.NodeTopologyTerm)(nil), "
        f"PreferredPersistentTopology:[]v1beta1.PreferredTopologyTerm{preferred}, "
        f"PersistentPodStateRetentionPolicy:{quote(spec.persistent_pod_state_retention_policy)}}}"
    )
