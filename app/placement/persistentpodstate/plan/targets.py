"""Workloads as PersistentPodState sees them, of whatever kind (PPS-11, PPS-12). Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from app.api import names
from app.api.statefulset import StatefulSet
from app.kube.objects import Workload as NativeWorkload
from app.pods.ordinals import Slots, reserved_intervals
from app.pods.owners import Owner

_ADVANCED: Final = f"{names.APPS_GROUP}/{names.V1BETA1}"
#: Of the annotations of a workload those that count.
ANNOTATIONS: Final = (
    names.AUTO_GENERATE_PERSISTENT_POD_STATE,
    names.REQUIRED_PERSISTENT_TOPOLOGY,
    names.PREFERRED_PERSISTENT_TOPOLOGY,
    names.PERSISTENT_POD_ANNOTATIONS,
)


@dataclass(frozen=True, slots=True)
class Workload:
    """One workload. ``slots``: the ordinals that shall have a Pod."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str
    deleting: bool
    annotations: Mapping[str, str]
    slots: Slots

    @property
    def owner(self) -> Owner:
        """The workload, as its dependents refer to it."""
        return Owner(self.api_version, self.kind, self.name, self.namespace, self.uid)

    @property
    def group(self) -> str:
        """Its API group."""
        return self.api_version.rpartition("/")[0]


def native(found: NativeWorkload) -> Workload:
    """A native StatefulSet."""
    spec = found.spec
    replicas = 1 if spec.replicas is None else spec.replicas
    start = spec.ordinals.start if spec.ordinals is not None else 0
    metadata = found.metadata
    return Workload(
        "apps/v1",
        "StatefulSet",
        metadata.namespace,
        metadata.name,
        metadata.uid,
        metadata.deletion_timestamp is not None,
        _relevant(metadata.annotations),
        Slots.of(replicas, start, ()),
    )


def advanced(found: StatefulSet, *, start_ordinal: bool) -> Workload:
    """An Advanced StatefulSet. ``start_ordinal``: whether its first ordinal is the one that it names."""
    spec, metadata = found.spec, found.metadata
    replicas = 1 if spec.replicas is None else spec.replicas
    start = spec.ordinals.start if start_ordinal and spec.ordinals is not None else 0
    return Workload(
        _ADVANCED,
        "StatefulSet",
        metadata.namespace,
        metadata.name,
        metadata.uid,
        found.deleting,
        _relevant(metadata.annotations),
        Slots.of(replicas, start, reserved_intervals(spec.reserve_ordinals or ())),
    )


def listed(found: Mapping[str, Any], api_version: str, kind: str) -> Workload:
    """PPS-11: a workload of a kind that the operator lists; whatever is not there, or no number, counts as 0."""
    metadata, spec = _mapping(found, "metadata"), _mapping(found, "spec")
    reserved = spec.get("reserveOrdinals")
    ordinals: Iterable[int | str] = [
        one
        for one in (reserved if isinstance(reserved, list) else ())
        if isinstance(one, int | str) and not isinstance(one, bool)
    ]
    start = _number(_mapping(spec, "ordinals"), "start")
    return Workload(
        api_version,
        kind,
        str(metadata.get("namespace") or ""),
        str(metadata.get("name") or ""),
        str(metadata.get("uid") or ""),
        bool(metadata.get("deletionTimestamp")),
        _relevant(_mapping(metadata, "annotations")),
        Slots.of(_number(spec, "replicas"), start, reserved_intervals(ordinals)),
    )


def _relevant(annotations: Mapping[str, Any]) -> Mapping[str, str]:
    return {key: str(annotations[key]) for key in ANNOTATIONS if key in annotations}


def _mapping(obj: Mapping[str, Any], field: str) -> Mapping[str, Any]:
    value = obj.get(field)
    return value if isinstance(value, Mapping) else {}


def _number(obj: Mapping[str, Any], field: str) -> int:
    value = obj.get(field)
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
