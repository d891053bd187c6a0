"""Writing Advanced StatefulSets without a cluster: what an API server does with its schema, and the two webhooks."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from app.features.statefulset.kind import STATEFUL_SET
from app.features.statefulset.webhooks import Lookups, handlers
from tests.admission.writing import BETA, Json, Written, written
from tests.kit import objects

ALL: tuple[str, ...] = ("StatefulSetAutoDeletePVC", "StatefulSetAutoResizePVCGate", "StatefulSetStartOrdinal")
GATE: Json = {"conditionType": "InPlaceUpdateReady"}


def stateful_set(name: str = "web", *, version: str = BETA, metadata: Json | None = None, **spec: Any) -> Json:
    """Return a valid StatefulSet with ``spec`` merged over it; None removes a field."""
    valid = objects.workload_spec(3)
    valid["template"]["spec"]["readinessGates"] = [GATE]
    whole = {**valid, "serviceName": "web", "podManagementPolicy": "Parallel", **spec}
    return {
        "apiVersion": version,
        "kind": "StatefulSet",
        "metadata": {"name": name, "namespace": "shop", **(metadata or {})},
        "spec": {key: value for key, value in whole.items() if value is not None},
    }


def rolling(**fields: Any) -> Json:
    return {"type": "RollingUpdate", "rollingUpdate": fields}


def claim(storage: str = "1Gi", name: str = "data", **spec: Any) -> Json:
    resources = {"requests": {"storage": storage}}
    return {"metadata": {"name": name}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": resources, **spec}}


class ClusterLookups(Lookups):
    def __init__(self, gates: Collection[str], classes: Mapping[str, bool | None]) -> None:
        super().__init__(lambda gate: gate in gates)
        self.classes = classes

    async def expandable(self) -> Mapping[str, bool | None]:
        return self.classes


def lookups(gates: Collection[str] = ALL, classes: Mapping[str, bool | None] | None = None) -> Lookups:
    return ClusterLookups(gates, classes or {})


def write(obj: Json, old: Json | None = None, asked: Lookups | None = None) -> Written:
    """Create ``obj``, or update ``old`` to it, in the version it is written in."""
    return written(STATEFUL_SET, handlers(asked or lookups()), obj, old)


def refusal(obj: Json, old: Json | None = None, asked: Lookups | None = None) -> str:
    """Return the message of the refusal; "" if the write is allowed."""
    return write(obj, old, asked).message
