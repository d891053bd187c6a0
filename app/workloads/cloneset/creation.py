"""What a CloneSet creates: a Pod and its claims (CS-115 … CS-118, CS-142). Pure: ids and times are arguments."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeAlias

from app.api import names
from app.kube.clock import rfc3339
from app.pods.hashes import Random, random_suffix
from app.workloads.cloneset.pods import short_hash

Json: TypeAlias = Mapping[str, Any]

#: Tries to draw an id nobody has; 27⁵ ids make the first one do nearly always.
_DRAWS = 1000


@dataclass(frozen=True, slots=True)
class Owner:
    """The CloneSet, as what it creates refers to it."""

    api_version: str
    kind: str
    name: str
    namespace: str
    uid: str

    @property
    def reference(self) -> Json:
        """The controller's owner reference."""
        return {
            "apiVersion": self.api_version,
            "kind": self.kind,
            "name": self.name,
            "uid": self.uid,
            "controller": True,
            "blockOwnerDeletion": True,
        }


class PodMaker:
    """Makes the Pods of one revision. ``template`` is the Pod template, ``claims`` the volumeClaimTemplates."""

    def __init__(
        self, owner: Owner, template: Json, claims: Sequence[Json], revision: str, *, short_label: bool, selector: Json
    ) -> None:
        self._owner = owner
        digest = short_hash(revision)
        metadata = _object(template, "metadata")
        self._labels = {
            **_object(metadata, "labels"),
            names.CONTROLLER_REVISION_HASH: digest if short_label else revision,
            names.POD_TEMPLATE_HASH: digest,
            names.LIFECYCLE_STATE: "PreparingNormal",
        }
        self._annotations = dict(_object(metadata, "annotations"))
        self._finalizers = list(metadata.get("finalizers") or ())
        self._spec = _with_gate(_object(template, "spec"))
        self._claims = claims
        self._claim_labels = {**_object(metadata, "labels"), **_object(selector, "matchLabels")}

    def pod(self, instance: str, now: datetime) -> Json:
        """The Pod of that instance id."""
        owner = self._owner
        metadata = {
            "name": pod_name(owner.name, instance),
            "generateName": f"{owner.name}-",
            "namespace": owner.namespace,
            "labels": {**self._labels, names.CLONE_SET_INSTANCE_ID: instance},
            "annotations": {**self._annotations, names.LIFECYCLE_TIMESTAMP: rfc3339(now)},
            "ownerReferences": [owner.reference],
        }
        if self._finalizers:
            metadata["finalizers"] = self._finalizers
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": self._spec_of(instance)}

    def claims(self, instance: str, existing: Collection[str]) -> list[Json]:
        """CS-118: the claims of that instance id, without those that exist."""
        made = []
        for template in self._claims:
            name = self._claim_name(template, instance)
            if name in existing:
                continue
            metadata = _object(template, "metadata")
            made.append(
                {
                    "apiVersion": "v1",
                    "kind": "PersistentVolumeClaim",
                    "metadata": {
                        "name": name,
                        "namespace": self._owner.namespace,
                        "labels": {
                            **_object(metadata, "labels"),
                            **self._claim_labels,
                            names.CLONE_SET_INSTANCE_ID: instance,
                        },
                        "annotations": dict(_object(metadata, "annotations")),
                        "ownerReferences": [self._owner.reference],
                    },
                    "spec": _object(template, "spec"),
                }
            )
        return made

    def _spec_of(self, instance: str) -> Json:
        if not self._claims:
            return self._spec
        own = [
            {
                "name": _object(template, "metadata").get("name"),
                "persistentVolumeClaim": {"claimName": self._claim_name(template, instance), "readOnly": False},
            }
            for template in self._claims
        ]
        # B-15: in the order they are declared; a volume of the template under the same name gives way.
        replaced = {volume["name"] for volume in own}
        others = [volume for volume in self._spec.get("volumes") or () if volume.get("name") not in replaced]
        return {**self._spec, "volumes": [*own, *others]}

    def _claim_name(self, template: Json, instance: str) -> str:
        return f"{_object(template, 'metadata').get('name')}-{pod_name(self._owner.name, instance)}"


def pod_name(owner: str, instance: str) -> str:
    """CS-116: the name of the Pod with that instance id."""
    return f"{owner}-{instance}"


def instance_ids(count: int, free: Iterable[str], taken: Collection[str], rng: Random) -> list[str]:
    """CS-115, CS-117: ids for so many new Pods: free ones first, then new ones nobody has; in order.

    ``free``: ids of claims without a Pod, or of Pods whose creation failed. ``taken``: all that are in use.
    """
    used = set(taken)
    chosen = [instance for instance in sorted(free) if instance not in used][:count]
    used.update(chosen)
    for _ in range(count - len(chosen)):
        for _ in range(_DRAWS):
            instance = random_suffix(rng)
            if instance not in used:
                break
        used.add(instance)
        chosen.append(instance)
    return sorted(chosen)


def _with_gate(spec: Json) -> Json:
    """PM-4: every Pod of a CloneSet has the readiness gate, whatever the update policy."""
    gates = list(spec.get("readinessGates") or ())
    if not any(gate.get("conditionType") == names.IN_PLACE_UPDATE_READY for gate in gates):
        gates.append({"conditionType": names.IN_PLACE_UPDATE_READY})
    return {**spec, "readinessGates": gates}


def _object(parent: Json, key: str) -> Json:
    value = parent.get(key)
    return value if isinstance(value, Mapping) else {}
