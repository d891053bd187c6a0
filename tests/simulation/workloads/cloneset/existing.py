"""The objects that exist in a run with CloneSets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from app.kube.resources import PODS
from tests.simulation.rest import Rest
from tests.simulation.script import NAMESPACE
from tests.simulation.workloads.cloneset.manifests import CLONE_SETS
from tests.simulation.workloads.cloneset.promises import Spec
from tests.simulation.workloads.sidecars import SIDECAR_SETS

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Existing:
    """Names of SidecarSets, Pods without an owner, and CloneSets."""

    sets: Sequence[str]
    pods: Sequence[str]
    clones: Sequence[str]
    #: CloneSets that update in place, that reuse claims, and that do not (with their replicas).
    in_place: Sequence[str] = ()
    keeping: Sequence[str] = ()
    dropping: Mapping[str, int] = field(default_factory=dict)
    #: CloneSets with Pods, and their replicas.
    staffed: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, rest: Rest) -> Existing:
        clones = {name: Spec.of(found) for name, found in sorted(rest.stored(CLONE_SETS).items())}
        return cls(
            sorted(rest.stored(SIDECAR_SETS)),
            bare_pods(rest),
            [*clones],
            [name for name, spec in clones.items() if spec.replicas and spec.policy != "ReCreate"],
            [name for name, spec in clones.items() if spec.replicas and spec.claims and spec.reuse],
            {name: spec.replicas for name, spec in clones.items() if spec.claims and not spec.reuse},
            {name: spec.replicas for name, spec in clones.items() if spec.replicas},
        )


def bare_pods(rest: Rest) -> list[str]:
    return sorted(name for name, found in rest.stored(PODS).items() if _is_bare(found))


def _is_bare(obj: Json) -> bool:
    return obj["metadata"].get("namespace") == NAMESPACE and not obj["metadata"].get("ownerReferences")
