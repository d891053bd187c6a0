"""The workload of one subset: what it says, and whether it says so already (UD-27 … UD-31, UD-47, UD-48). Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from app.api import names
from app.api.gojson import dumps_go
from app.api.jsonvalue import json_copy
from app.api.podmerge import POD
from app.api.uniteddeployment import Subset
from app.api.uniteddeployment.types import ADVANCED_STATEFUL_SET, CLONE_SET, DEPLOYMENT, STATEFUL_SET
from app.kube.intorpercent import scaled
from app.kube.objects import ObjectMeta, Struct, decoder
from app.kube.patches import PatchError
from app.kube.strategic import strategic_merge
from app.kube.validation import is_dns1123_subdomain

ROLLING_UPDATE: Final = "RollingUpdate"
ON_DELETE: Final = "OnDelete"
#: What events call a workload.
SHOWN_KINDS: Final[Mapping[str, str]] = {
    STATEFUL_SET: "StatefulSet",
    ADVANCED_STATEFUL_SET: "AdvancedStatefulSet",
    CLONE_SET: "CloneSet",
    DEPLOYMENT: "Deployment",
}


class _Spec(Struct, frozen=True):
    replicas: int | None = None
    update_strategy: dict[str, Any] | None = None


class _Status(Struct, frozen=True):
    replicas: int = 0
    ready_replicas: int = 0
    updated_replicas: int = 0


class SubsetWorkload(Struct, frozen=True):
    """What is read of a subset's workload, of whatever kind."""

    metadata: ObjectMeta = ObjectMeta()
    spec: _Spec = _Spec()
    status: _Status = _Status()

    @property
    def subset(self) -> str:
        """The subset it is for."""
        return self.metadata.labels.get(names.SUBSET_NAME, "")

    @property
    def replicas(self) -> int:
        """How many Pods it is asked for."""
        return 1 if self.spec.replicas is None else self.spec.replicas


decode_subset_workload = decoder(SubsetWorkload)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the workload of a subset is to say."""

    name: str
    replicas: int
    partition: int
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    spec: Mapping[str, Any]


class SubsetError(ValueError):
    """A workload that cannot be made; the text says why."""


def wanted_workload(
    kind: str,
    template: Mapping[str, Any],
    selector: Mapping[str, Any],
    subset: Subset,
    *,
    replicas: int,
    partition: int,
    revision: str,
) -> Wanted:
    """UD-28 … UD-31. Raises SubsetError for a patch that cannot be merged.

    ``template``: what the UnitedDeployment has under ``kind``; ``revision``: the name of its revision.
    """
    ours = {names.SUBSET_NAME: subset.name, names.UNITED_REVISION_HASH: revision}
    metadata = _object(template, "metadata")
    matched = _object(selector, "matchLabels")
    spec: dict[str, Any] = json_copy(_object(template, "spec"))
    spec["selector"] = {**json_copy(dict(selector)), "matchLabels": {**matched, names.SUBSET_NAME: subset.name}}
    spec["replicas"] = replicas
    _set_partition(kind, spec, partition)
    spec["template"] = _pod_template(_object(spec, "template"), ours, subset)
    return Wanted(
        subset.name,
        replicas,
        partition,
        {**_object(metadata, "labels"), **matched, **ours},
        {**_object(metadata, "annotations"), names.SUBSET_PATCH: patch_text(subset)},
        spec,
    )


def patch_text(subset: Subset) -> str:
    """UD-28: a subset's patch as an annotation has it."""
    return dumps_go(subset.patch, sort_keys=True) if subset.patch else ""


def generated_name(united: str, subset: str) -> str:
    """UD-27: what the name of a subset's workload begins with."""
    prefix = f"{united}-{subset}-"
    return prefix if not is_dns1123_subdomain(f"{prefix}x") else f"{united}-"


def needs_update(kind: str, workload: SubsetWorkload, wanted: Wanted) -> bool:
    """UD-48. (A partition of Deployments means nothing, so it is not compared.)"""
    metadata = workload.metadata
    return (
        metadata.labels.get(names.UNITED_REVISION_HASH) != wanted.labels[names.UNITED_REVISION_HASH]
        or workload.replicas != wanted.replicas
        or metadata.annotations.get(names.SUBSET_PATCH, "") != wanted.annotations[names.SUBSET_PATCH]
        or (kind != DEPLOYMENT and _has_partition(kind, workload) and partition_of(kind, workload) != wanted.partition)
    )


def partition_of(kind: str, workload: SubsetWorkload) -> int:
    """How many Pods of a workload keep the old template."""
    rolling = _object(workload.spec.update_strategy or {}, "rollingUpdate")
    share = rolling.get("partition")
    if kind == DEPLOYMENT or share is None or isinstance(share, bool):
        return 0
    if isinstance(share, int):
        return share
    return scaled(share, workload.replicas, True) if isinstance(share, str) else 0


def _has_partition(kind: str, workload: SubsetWorkload) -> bool:
    """UD-30: nothing is written where Pods are replaced when somebody deletes them."""
    return kind == CLONE_SET or (workload.spec.update_strategy or {}).get("type") != ON_DELETE


def _set_partition(kind: str, spec: dict[str, Any], partition: int) -> None:
    """UD-30."""
    if kind == DEPLOYMENT:
        return
    strategy = {**_object(spec, "updateStrategy")}
    if strategy.get("type") in (None, "", ROLLING_UPDATE):
        strategy["type"] = ROLLING_UPDATE
        strategy["rollingUpdate"] = {**_object(strategy, "rollingUpdate"), "partition": partition}
        spec["updateStrategy"] = strategy


def _pod_template(template: Mapping[str, Any], labels: Mapping[str, str], subset: Subset) -> dict[str, Any]:
    made: dict[str, Any] = json_copy(dict(template))
    metadata = made["metadata"] = {**_object(made, "metadata")}
    metadata["labels"] = {**_object(metadata, "labels"), **labels}
    spec = made["spec"] = {**_object(made, "spec")}
    _add_node_term(spec, subset.node_selector_term or {})
    if subset.tolerations:
        spec["tolerations"] = [*(spec.get("tolerations") or ()), *json_copy(subset.tolerations)]
    if not subset.patch:
        return made
    try:
        return strategic_merge(made, json_copy(subset.patch), POD)
    except PatchError as error:
        raise SubsetError(f"patch of subset {subset.name}: {error}") from None


def _add_node_term(spec: dict[str, Any], term: Mapping[str, Any]) -> None:
    """UD-31: the term holds in addition to each that is there."""
    more = {key: list(term[key]) for key in ("matchExpressions", "matchFields") if term.get(key)}
    if not more:
        return
    affinity = spec["affinity"] = {**_object(spec, "affinity")}
    of_nodes = affinity["nodeAffinity"] = {**_object(affinity, "nodeAffinity")}
    required = {**_object(of_nodes, "requiredDuringSchedulingIgnoredDuringExecution")}
    of_nodes["requiredDuringSchedulingIgnoredDuringExecution"] = required
    terms = required.get("nodeSelectorTerms") or [{}]
    required["nodeSelectorTerms"] = [
        {**one, **{key: [*(one.get(key) or ()), *json_copy(added)] for key, added in more.items()}} for one in terms
    ]


def _object(parent: Mapping[str, Any], name: str) -> dict[str, Any]:
    found = parent.get(name)
    return found if isinstance(found, dict) else {}
