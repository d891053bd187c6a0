"""The subsets: the workload of each, the Pods and workloads it claims, and its revision. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from app.api import names
from app.api.gojson import dumps_go
from app.api.gopod import POD
from app.features.uniteddeployment.kind import UNITED_DEPLOYMENT, as_printed
from app.features.uniteddeployment.types import (
    ADVANCED_STATEFUL_SET,
    CLONE_SET,
    DEPLOYMENT,
    STATEFUL_SET,
    TEMPLATES,
    Subset,
    UnitedDeployment,
    template_of,
)
from app.kube.jsonvalues import json_copy
from app.kube.objects import ObjectMeta, Pod, Struct, decoder
from app.kube.patches import PatchError, strategic_merge
from app.kube.quantities import IntOrPercentError, scaled
from app.kube.resources import DEPLOYMENTS, Resource
from app.kube.validation import is_dns1123_subdomain
from app.pods.predicates import Owner, is_active, is_controlled_by, is_running_and_ready
from app.workloads.settings import Content, WorkloadKind

# The workload of one subset: what it says, and whether it says so already (UD-27 … UD-31, UD-47, UD-48, UD-58). Pure.

ROLLING_UPDATE: Final = "RollingUpdate"
ON_DELETE: Final = "OnDelete"
STATEFUL: Final = (STATEFUL_SET, ADVANCED_STATEFUL_SET)
#: Characters that an API server adds to a generateName.
GENERATED: Final = 5
#: The longest name of a workload whose Pods can carry the name of its revision as a label.
LONGEST_LABELLED: Final = 52
#: maxUnavailable where the template does not say it.
_MAX_UNAVAILABLE: Final[Mapping[str, str]] = {CLONE_SET: "20%", DEPLOYMENT: "25%"}
#: What events call a workload.
SHOWN_KINDS: Final[Mapping[str, str]] = {
    STATEFUL_SET: "StatefulSet",
    ADVANCED_STATEFUL_SET: "AdvancedStatefulSet",
    CLONE_SET: "CloneSet",
    DEPLOYMENT: "Deployment",
}


class _Spec(Struct, frozen=True):
    replicas: int | None = None
    #: Deployments call it ``strategy``, all others ``updateStrategy``.
    strategy: dict[str, Any] | None = None
    update_strategy: dict[str, Any] | None = None


class WorkloadCondition(Struct, frozen=True):
    """One condition of a workload."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""


class _Status(Struct, frozen=True):
    observed_generation: int = 0
    replicas: int = 0
    ready_replicas: int = 0
    update_revision: str = ""
    conditions: tuple[WorkloadCondition, ...] = ()


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
    #: UD-58: how many Pods may be unavailable, where that is not what the template says.
    max_unavailable: int | None = None


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
    max_unavailable: int | None = None,
) -> Wanted:
    """UD-28 … UD-31, UD-58. Raises SubsetError for a patch that cannot be merged.

    ``template``: what the UnitedDeployment has under ``kind``; ``revision``: the name of its revision;
    ``max_unavailable``: instead of what the template says, where Pods of the kind are replaced step by step.
    """
    ours = {names.SUBSET_NAME: subset.name, names.UNITED_REVISION_HASH: revision}
    metadata = _object(template, "metadata")
    matched = _object(selector, "matchLabels")
    spec: dict[str, Any] = json_copy(_object(template, "spec"))
    spec["selector"] = {**json_copy(dict(selector)), "matchLabels": {**matched, names.SUBSET_NAME: subset.name}}
    spec["replicas"] = replicas
    if kind != DEPLOYMENT:
        _set_rolling(kind, spec, "partition", partition)
    if max_unavailable is not None:
        _set_rolling(kind, spec, "maxUnavailable", max_unavailable)
    spec["template"] = _pod_template(_object(spec, "template"), ours, subset)
    return Wanted(
        subset.name,
        replicas,
        partition,
        {**_object(metadata, "labels"), **matched, **ours},
        {**_object(metadata, "annotations"), names.SUBSET_PATCH: patch_text(subset)},
        spec,
        max_unavailable,
    )


def tolerated_unavailable(kind: str, template: Mapping[str, Any], replicas: int, stuck: int) -> int | None:
    """UD-58: maxUnavailable of a subset in which ``stuck`` Pods would block the roll-out: as many, but never
    fewer than the template allows. None for kinds and types without one."""
    spec = _object(template, "spec")
    if kind not in _MAX_UNAVAILABLE or not _rolls(kind, spec):
        return None
    share = _rolling(kind, spec).get("maxUnavailable")
    try:
        allowed = scaled(_MAX_UNAVAILABLE[kind] if share is None else share, replicas, kind == CLONE_SET)
    except IntOrPercentError:
        allowed = 0
    return max(allowed, stuck)


def is_held(kind: str, template: Mapping[str, Any]) -> bool:
    """Whether no Pod is replaced whatever the partition says: the roll-out is paused, or waits for somebody who
    deletes Pods."""
    spec = _object(template, "spec")
    if kind == DEPLOYMENT:
        return spec.get("paused") is True
    return not _rolls(kind, spec) or _rolling(kind, spec).get("paused") is True


def patch_text(subset: Subset) -> str:
    """UD-28: a subset's patch as an annotation has it."""
    return dumps_go(subset.patch, sort_keys=True) if subset.patch else ""


def generated_name(kind: str, united: str, subset: str) -> str:
    """UD-27: what the name of a subset's workload begins with. (Shorter where a workload of the longer name could
    not make Pods: those of all but Deployments carry the name of its revision as a label.)"""
    prefix = f"{united}-{subset}-"
    too_long = kind != DEPLOYMENT and len(prefix) + GENERATED > LONGEST_LABELLED
    return f"{united}-" if too_long or is_dns1123_subdomain(f"{prefix}x") else prefix


def needs_update(kind: str, workload: SubsetWorkload, wanted: Wanted) -> bool:
    """UD-48. (A partition of Deployments means nothing, so it is not compared.)"""
    metadata = workload.metadata
    return (
        metadata.labels.get(names.UNITED_REVISION_HASH) != wanted.labels[names.UNITED_REVISION_HASH]
        or workload.replicas != wanted.replicas
        or metadata.annotations.get(names.SUBSET_PATCH, "") != wanted.annotations[names.SUBSET_PATCH]
        or (kind != DEPLOYMENT and _has_partition(kind, workload) and partition_of(kind, workload) != wanted.partition)
        or (kind in _MAX_UNAVAILABLE and _differs_in_unavailable(kind, workload, wanted))
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
    """UD-30: nothing is written where Pods are replaced when they are deleted."""
    return kind == CLONE_SET or (workload.spec.update_strategy or {}).get("type") != ON_DELETE


def _differs_in_unavailable(kind: str, workload: SubsetWorkload, wanted: Wanted) -> bool:
    """UD-58, and back to what the template says afterwards: only we write numbers where the template has none."""
    stored = _object(_strategy_of(kind, workload) or {}, "rollingUpdate").get("maxUnavailable")
    if wanted.max_unavailable is not None:
        return bool(stored != wanted.max_unavailable)
    share = _rolling(kind, wanted.spec).get("maxUnavailable")
    return isinstance(stored, int) and stored != share and _rolls(kind, wanted.spec)


def _strategy_of(kind: str, workload: SubsetWorkload) -> dict[str, Any] | None:
    return workload.spec.strategy if kind == DEPLOYMENT else workload.spec.update_strategy


def _strategy_field(kind: str) -> str:
    return "strategy" if kind == DEPLOYMENT else "updateStrategy"


def _rolls(kind: str, spec: Mapping[str, Any]) -> bool:
    """Whether Pods are replaced step by step, by themselves."""
    return _object(spec, _strategy_field(kind)).get("type") in (None, "", ROLLING_UPDATE)


def _rolling(kind: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    return _object(_object(spec, _strategy_field(kind)), "rollingUpdate")


def _set_rolling(kind: str, spec: dict[str, Any], name: str, value: int) -> None:
    """UD-30: written where Pods are replaced step by step."""
    if not _rolls(kind, spec):
        return
    at = _strategy_field(kind)
    spec[at] = {**_object(spec, at), "type": ROLLING_UPDATE, "rollingUpdate": {**_rolling(kind, spec), name: value}}


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


# Which workloads are those of a UnitedDeployment's subsets (UD-32, UD-33). Pure.


@dataclass(frozen=True, slots=True)
class Claims:
    """What is to become of the workloads that were found; templates say of which kind they are."""

    #: Subset → its workload.
    existing: Mapping[str, SubsetWorkload]
    #: Owned, and wanted by nobody: of subsets that are gone, of other kinds, or a second one for a subset.
    surplus: Sequence[tuple[str, SubsetWorkload]]
    #: Owned, but somebody changed its labels so that the selector does not match any more.
    release: Sequence[tuple[str, SubsetWorkload]] = ()
    #: Nobody's, for subsets that have no workload.
    adopt: Sequence[SubsetWorkload] = ()


def claim(
    kind: str,
    subsets: Collection[str],
    owned: Mapping[str, Sequence[SubsetWorkload]],
    nobodys: Sequence[SubsetWorkload],
    matches: Callable[[Mapping[str, str]], bool],
) -> Claims:
    """``owned``: by template; ``nobodys``: those of ``kind`` without a controller; ``matches``: the selector.

    What was never owned is never deleted, so nothing is adopted that would be surplus.
    """
    existing: dict[str, SubsetWorkload] = {}
    surplus: list[tuple[str, SubsetWorkload]] = []
    release: list[tuple[str, SubsetWorkload]] = []
    for template, found in owned.items():
        for one in _oldest_first(found):
            if not matches(one.metadata.labels):
                release.append((template, one))
            elif template == kind and one.subset in subsets and one.subset not in existing:
                existing[one.subset] = one
            else:
                surplus.append((template, one))
    adopt: dict[str, SubsetWorkload] = {}
    for one in _oldest_first(nobodys):
        if one.subset in subsets and one.subset not in existing and matches(one.metadata.labels):
            adopt.setdefault(one.subset, one)
    return Claims(existing, surplus, release, list(adopt.values()))


def _oldest_first(found: Sequence[SubsetWorkload]) -> list[SubsetWorkload]:
    living = [one for one in found if one.metadata.deletion_timestamp is None]
    return sorted(living, key=lambda one: (str(one.metadata.creation_timestamp or ""), one.metadata.name))


# The Pods of a subset: whose they are, and which of them stand in the way of a roll-out (UD-50). Pure.

_ORDINAL: Final = re.compile(r"-([0-9]{1,10})$")


def is_of(resource: Resource, workload: SubsetWorkload, pod: Pod) -> bool:
    """Return whether a workload of that resource made the Pod. The Pods of a Deployment are those of its ReplicaSets,
    whose names begin with its own; no cache holds them."""
    metadata = pod.metadata
    if resource != DEPLOYMENTS:
        return is_controlled_by(metadata, Owner.of(resource, workload.metadata))
    reference = metadata.controller
    return (
        reference is not None
        and (reference.group, reference.kind) == (DEPLOYMENTS.group, "ReplicaSet")
        and metadata.namespace == workload.metadata.namespace
        and reference.name.startswith(f"{workload.metadata.name}-")
    )


def stuck_pods(workload: SubsetWorkload, pods: Iterable[Pod], update: str) -> list[Pod]:
    """UD-50: Pods of a native StatefulSet that are to be replaced and are not ready: it waits for them for ever.

    ``update``: the name of the UnitedDeployment's revision. What a changed patch replaces is told by the StatefulSet's
    own revision, once it has seen its present spec.
    """
    strategy, status = workload.spec.update_strategy or {}, workload.status
    if strategy.get("type") == ON_DELETE or workload.metadata.labels.get(names.UNITED_REVISION_HASH) != update:
        return []
    partition = _partition(strategy)
    seen = status.observed_generation >= workload.metadata.generation and bool(status.update_revision)

    def is_old(pod: Pod) -> bool:
        labels = pod.metadata.labels
        if labels.get(names.UNITED_REVISION_HASH) != update:
            return True
        return seen and labels.get(names.CONTROLLER_REVISION_HASH) != status.update_revision

    return [
        pod
        for pod in pods
        if is_active(pod) and not is_running_and_ready(pod) and _ordinal(pod) >= partition and is_old(pod)
    ]


def _partition(strategy: Mapping[str, Any]) -> int:
    rolling = strategy.get("rollingUpdate")
    found = rolling.get("partition") if isinstance(rolling, dict) else None
    return found if isinstance(found, int) and not isinstance(found, bool) else 0


def _ordinal(pod: Pod) -> int:
    found = _ORDINAL.search(pod.metadata.name)
    return int(found[1]) if found is not None else -1


# What a UnitedDeployment records as a revision (UD-42, UD-45). Pure.

KIND = WorkloadKind(UNITED_DEPLOYMENT.resource())


def content_of(united: UnitedDeployment) -> Content:
    """UD-42, UD-45: the template alone is recorded, as Go prints it."""
    owner = KIND.owner(united.metadata)
    shown = as_printed({"spec": {"template": united.spec.template.to_dict() if united.spec.template else {}}})
    whole = shown["spec"]["template"]
    for name in TEMPLATES:
        given = whole.get(name)
        if isinstance(given, dict):
            given["metadata"] = {"creationTimestamp": None, **(given.get("metadata") or {})}
            pod = (given.get("spec") or {}).get("template")
            if isinstance(pod, dict):
                pod["metadata"] = {"creationTimestamp": None, **(pod.get("metadata") or {})}
            scale = (given.get("spec") or {}).get("scaleStrategy")
            if isinstance(scale, dict) and scale.get("enablePVCReuse") is False:
                del scale["enablePVCReuse"]
    data = dumps_go({"spec": {"template": {**whole, "$patch": "replace"}}}, sort_keys=True).encode()
    found = template_of(united.spec)
    labels = (found[1].get("metadata") or {}).get("labels") or {} if found is not None else {}
    return Content(owner, data, dict(labels), {})
