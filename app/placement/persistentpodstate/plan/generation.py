"""PersistentPodStates made from the annotations of a workload (PPS-13 … PPS-19, PPS-41). Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from app.api import names
from app.api.persistentpodstate import PERSISTENT_POD_STATE, PersistentPodState
from app.kube.patches import merge_difference
from app.placement.persistentpodstate.plan.targets import Workload
from app.pods.owners import is_controlled_by, refers_to

Json = Mapping[str, Any]

#: The weight of what is preferred.
WEIGHT: Final = 100
#: The fields that annotations decide. The rest of a generated object is the user's.
_FIELDS: Final = ("requiredPersistentTopology", "preferredPersistentTopology", "persistentPodAnnotations")


class Step(StrEnum):
    """What is to be done about a workload's annotations."""

    NOTHING = "nothing"
    CREATE = "create"
    CHANGE = "change"
    DELETE = "delete"
    #: Its name is taken by an object that is not this workload's.
    TAKEN = "taken"
    #: Its name is taken by the object of a workload of this name that is gone; the garbage collector takes it away.
    WAIT = "wait"


@dataclass(frozen=True, slots=True)
class Generation:
    """The step, with the body of a new object or the merge patch of a present one."""

    step: Step
    body: Json | None = None


_NOTHING: Final = Generation(Step.NOTHING)


def generation(workload: Workload, present: PersistentPodState | None) -> Generation:
    """``present``: the object that has the workload's name."""
    if workload.deleting or (present is not None and present.deleting):
        return _NOTHING  # PPS-19: what belongs to it goes with it
    switched_on = workload.annotations.get(names.AUTO_GENERATE_PERSISTENT_POD_STATE) == "true"
    wanted = wanted_fields(workload.annotations)
    if present is None:
        return Generation(Step.CREATE, _body(workload, wanted)) if switched_on and wanted else _NOTHING
    owner = present.metadata.controller
    if owner is None or not is_controlled_by(present.metadata, workload.owner):
        if not switched_on or not wanted:
            return _NOTHING
        former = owner is not None and (owner.api_version.rpartition("/")[0], owner.kind, owner.name) == (
            workload.group,
            workload.kind,
            workload.name,
        )
        return Generation(Step.WAIT if former else Step.TAKEN)
    if not switched_on:
        return Generation(Step.DELETE) if is_generated(present, workload) else _NOTHING
    if not wanted:
        return _NOTHING  # PPS-17
    found = present.spec.to_dict()
    patch = merge_difference({field: found[field] for field in _FIELDS if field in found}, wanted)
    return Generation(Step.CHANGE, {"spec": patch}) if patch else _NOTHING


def wanted_fields(annotations: Mapping[str, str]) -> dict[str, Any]:
    """PPS-15: what the annotations say; empty without a topology."""
    required = _keys(annotations, names.REQUIRED_PERSISTENT_TOPOLOGY)
    preferred = _keys(annotations, names.PREFERRED_PERSISTENT_TOPOLOGY)
    if not required and not preferred:
        return {}
    found: dict[str, Any] = {}
    if required:
        found["requiredPersistentTopology"] = {"keys": required}
    if preferred:
        found["preferredPersistentTopology"] = [{"weight": WEIGHT, "preference": {"keys": preferred}}]
    if remembered := _keys(annotations, names.PERSISTENT_POD_ANNOTATIONS):
        found["persistentPodAnnotations"] = [{"key": key} for key in remembered]
    return found


def is_generated(present: PersistentPodState, workload: Workload) -> bool:
    """Whether the workload's object was made from annotations, by us or by OpenKruise, and not by somebody else who
    made the workload its owner."""
    owners, spec = present.metadata.owner_references, present.spec
    preferred = spec.preferred_persistent_topology or []
    return (
        present.name == workload.name
        and len(owners) == 1
        and refers_to(owners[0], present.metadata.namespace, workload.owner)
        and not owners[0].block_owner_deletion
        and (not preferred or [one.weight for one in preferred] == [WEIGHT])
    )


def _keys(annotations: Mapping[str, str], annotation: str) -> list[str]:
    """PPS-41: without spaces around, empty parts and repetitions."""
    parts = (part.strip() for part in annotations.get(annotation, "").split(","))
    return list(dict.fromkeys(part for part in parts if part))


def _body(workload: Workload, wanted: Mapping[str, Any]) -> Json:
    target = {"apiVersion": workload.api_version, "kind": workload.kind, "name": workload.name}
    return {
        "apiVersion": f"{PERSISTENT_POD_STATE.group}/{PERSISTENT_POD_STATE.hub.name}",
        "kind": PERSISTENT_POD_STATE.kind,
        "metadata": {
            "name": workload.name,
            "namespace": workload.namespace,
            "ownerReferences": [{**target, "uid": workload.uid, "controller": True}],
        },
        "spec": {"targetRef": target, **wanted},
    }
