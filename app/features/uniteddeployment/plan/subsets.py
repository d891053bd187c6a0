"""Subsets: their workloads, the Pods and workloads they claim, and the revision of the template. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from app.api import names
from app.api.gojson import dumps_go
from app.api.gopod import POD
from app.features.cloneset import defaults as cloneset
from app.features.cloneset.kind import CLONE_SET as CLONE_SET_KIND
from app.features.statefulset.kind import STATEFUL_SET as STATEFUL_SET_KIND
from app.features.uniteddeployment.defaults import REPLICAS, as_printed
from app.features.uniteddeployment.kind import UNITED_DEPLOYMENT
from app.features.uniteddeployment.types import (
    ADVANCED_STATEFUL_SET,
    CLONE_SET,
    DEPLOYMENT,
    NATIVE_FIELDS,
    STATEFUL_SET,
    Subset,
    UnitedDeployment,
    template_of,
)
from app.kube.jsonvalues import as_object, json_copy
from app.kube.objects import ObjectMeta, Pod, Struct, decoder
from app.kube.patches import PatchError, strategic_merge
from app.kube.quantities import IntOrPercentError, scaled
from app.kube.resources import DEPLOYMENTS, STATEFULSETS, Resource
from app.kube.validation import is_dns1123_subdomain
from app.pods.node_fit import joining_problem
from app.pods.ordinals import ordinal_of
from app.pods.predicates import Owner, is_active, is_controlled_by, is_running_and_ready
from app.workloads.settings import Content, WorkloadKind

# Desired workload of one subset, and whether the existing one differs. [UD-27 … UD-31, UD-47, UD-48, UD-58]

ROLLING_UPDATE: Final = "RollingUpdate"
ON_DELETE: Final = "OnDelete"
STATEFUL: Final = (STATEFUL_SET, ADVANCED_STATEFUL_SET)
#: Number of characters that the API server adds to a generateName.
GENERATED: Final = 5
#: Maximum length of a workload's name if a label of its Pods holds the name of its revision.
LONGEST_LABELED: Final = 52
#: Default of maxUnavailable, by kind.
_MAX_UNAVAILABLE: Final[Mapping[str, str]] = {CLONE_SET: cloneset.MAX_UNAVAILABLE, DEPLOYMENT: "25%"}
RESOURCES: Final[Mapping[str, Resource]] = {
    STATEFUL_SET: STATEFULSETS,
    DEPLOYMENT: DEPLOYMENTS,
    CLONE_SET: CLONE_SET_KIND.resource(),
    ADVANCED_STATEFUL_SET: STATEFUL_SET_KIND.resource(),
}
#: Names of the kinds in events.
SHOWN_KINDS: Final[Mapping[str, str]] = {
    STATEFUL_SET: "StatefulSet",
    ADVANCED_STATEFUL_SET: "AdvancedStatefulSet",
    CLONE_SET: "CloneSet",
    DEPLOYMENT: "Deployment",
}


class _Spec(Struct, frozen=True):
    replicas: int | None = None
    #: The field is ``strategy`` in Deployments and ``updateStrategy`` in all other kinds.
    strategy: dict[str, Any] | None = None
    update_strategy: dict[str, Any] | None = None


class WorkloadCondition(Struct, frozen=True):
    """Condition of a workload."""

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
    """Workload of a subset, of any kind, as the controller reads it."""

    metadata: ObjectMeta = ObjectMeta()
    spec: _Spec = _Spec()
    status: _Status = _Status()

    @property
    def subset(self) -> str:
        return self.metadata.labels.get(names.SUBSET_NAME, "")

    @property
    def replicas(self) -> int:
        return REPLICAS if self.spec.replicas is None else self.spec.replicas


decode_subset_workload = decoder(SubsetWorkload)


@dataclass(frozen=True, slots=True)
class Built:
    """A workload to write, and the name of its subset."""

    subset: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    spec: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Wanted:
    """Desired workload of a subset. ``template`` is the content of the template, ``revision`` the name of its revision,
    and ``patch`` the subset's patch as stored in the annotation."""

    name: str
    replicas: int
    partition: int
    template: Mapping[str, Any]
    revision: str
    patch: str
    #: Overrides maxUnavailable of the template, if set. [UD-58]
    max_unavailable: int | None = None
    #: The workload to write now. None if it need not change or, with ``later``, if a later reconcile builds it.
    built: Built | None = None
    later: bool = False


class SubsetError(ValueError):
    """A workload that cannot be built."""


def built_workload(
    kind: str,
    selector: Mapping[str, Any],
    subset: Subset,
    wanted: Wanted,
) -> Built:
    """Build the desired workload. Raises SubsetError if the patch or the node selector term cannot be merged. [UD-28 …
    UD-31, UD-58]

    The result may be larger than the UnitedDeployment, which may have a thousand subsets, so do not build all at once.
    """
    template = wanted.template
    ours = {names.SUBSET_NAME: subset.name, names.UNITED_REVISION_HASH: wanted.revision}
    metadata = as_object(template.get("metadata"))
    matched = as_object(selector.get("matchLabels"))
    spec: dict[str, Any] = dict(as_object(template.get("spec")))
    spec["selector"] = {**json_copy(dict(selector)), "matchLabels": {**matched, names.SUBSET_NAME: subset.name}}
    spec["replicas"] = wanted.replicas
    if kind != DEPLOYMENT:
        _set_rolling(kind, spec, "partition", wanted.partition)
    if wanted.max_unavailable is not None:
        _set_rolling(kind, spec, "maxUnavailable", wanted.max_unavailable)
    spec["template"] = _pod_template(as_object(spec.get("template")), ours, subset)
    labels = {**as_object(metadata.get("labels")), **matched, **ours}
    annotations = {**as_object(metadata.get("annotations")), names.SUBSET_PATCH: wanted.patch}
    return Built(subset.name, labels, annotations, spec)


def tolerated_unavailable(kind: str, template: Mapping[str, Any], replicas: int, stuck: int) -> int | None:
    """Return a maxUnavailable with which ``stuck`` Pods do not block the rollout, at least that of the template.
    Return None for kinds and update types without maxUnavailable. [UD-58]"""
    spec = as_object(template.get("spec"))
    if kind not in _MAX_UNAVAILABLE or not _rolls(kind, spec):
        return None
    share = _rolling(kind, spec).get("maxUnavailable")
    try:
        allowed = scaled(_MAX_UNAVAILABLE[kind] if share is None else share, replicas, kind == CLONE_SET)
    except IntOrPercentError:
        allowed = 0
    return max(allowed, stuck)


def is_held(kind: str, template: Mapping[str, Any]) -> bool:
    """Return whether the workload updates no Pods, whatever its partition, because the rollout is paused or the
    strategy is OnDelete."""
    spec = as_object(template.get("spec"))
    if kind == DEPLOYMENT:
        return spec.get("paused") is True
    return not _rolls(kind, spec) or _rolling(kind, spec).get("paused") is True


def patch_text(subset: Subset) -> str:
    """Return the patch of a subset as stored in the annotation. [UD-28]"""
    return dumps_go(subset.patch, sort_keys=True) if subset.patch is not None else ""


def generated_name(kind: str, united: str, subset: str) -> str:
    """Return the generateName of a subset's workload. The subset's name is omitted if the result would be too long:
    except for Deployments, a label of the Pods holds the name of the workload's revision. [UD-27]"""
    prefix = f"{united}-{subset}-"
    too_long = kind != DEPLOYMENT and len(prefix) + GENERATED > LONGEST_LABELED
    return f"{united}-" if too_long or is_dns1123_subdomain(f"{prefix}x") else prefix


def needs_update(kind: str, workload: SubsetWorkload, wanted: Wanted) -> bool:
    """Return whether the workload must be updated. Deployments have no partition to compare. [UD-48]"""
    metadata = workload.metadata
    return (
        metadata.labels.get(names.UNITED_REVISION_HASH) != wanted.revision
        or workload.replicas != wanted.replicas
        or metadata.annotations.get(names.SUBSET_PATCH, "") != wanted.patch
        or (kind != DEPLOYMENT and _has_partition(workload) and partition_of(kind, workload) != wanted.partition)
        or (kind in _MAX_UNAVAILABLE and _differs_in_unavailable(kind, workload, wanted))
    )


def partition_of(kind: str, workload: SubsetWorkload) -> int:
    """Return how many Pods of a workload keep the old template."""
    rolling = as_object((workload.spec.update_strategy or {}).get("rollingUpdate"))
    share = rolling.get("partition")
    if kind == DEPLOYMENT or share is None or isinstance(share, bool):
        return 0
    if isinstance(share, int):
        return share
    return scaled(share, workload.replicas, True) if isinstance(share, str) else 0


def _has_partition(workload: SubsetWorkload) -> bool:
    """Return whether the workload has a partition. With OnDelete, it has none. [UD-30]"""
    return (workload.spec.update_strategy or {}).get("type") != ON_DELETE


def _differs_in_unavailable(kind: str, workload: SubsetWorkload, wanted: Wanted) -> bool:
    """Return whether maxUnavailable must be set, or reset to the template's value. A number that differs from that of
    the template was written by this controller. [UD-58]"""
    strategy = workload.spec.strategy if kind == DEPLOYMENT else workload.spec.update_strategy
    stored = as_object((strategy or {}).get("rollingUpdate")).get("maxUnavailable")
    if wanted.max_unavailable is not None:
        return bool(stored != wanted.max_unavailable)
    spec = as_object(wanted.template.get("spec"))
    share = _rolling(kind, spec).get("maxUnavailable")
    return isinstance(stored, int) and stored != share and _rolls(kind, spec)


def _strategy_field(kind: str) -> str:
    return "strategy" if kind == DEPLOYMENT else "updateStrategy"


def _rolls(kind: str, spec: Mapping[str, Any]) -> bool:
    return as_object(spec.get(_strategy_field(kind))).get("type") in (None, "", ROLLING_UPDATE)


def _rolling(kind: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    return as_object(as_object(spec.get(_strategy_field(kind))).get("rollingUpdate"))


def _set_rolling(kind: str, spec: dict[str, Any], name: str, value: int) -> None:
    """Set a field of the rolling update if the strategy is RollingUpdate. [UD-30]"""
    if not _rolls(kind, spec):
        return
    at = _strategy_field(kind)
    spec[at] = {
        **as_object(spec.get(at)),
        "type": ROLLING_UPDATE,
        "rollingUpdate": {**_rolling(kind, spec), name: value},
    }


def _pod_template(template: Mapping[str, Any], labels: Mapping[str, str], subset: Subset) -> dict[str, Any]:
    made: dict[str, Any] = dict(template)
    metadata = made["metadata"] = {**as_object(made.get("metadata"))}
    metadata["labels"] = {**as_object(metadata.get("labels")), **labels}
    spec = made["spec"] = {**as_object(made.get("spec"))}
    if subset.node_selector_term is not None:
        _add_node_term(spec, subset.node_selector_term.to_dict(), subset.name)
    if subset.tolerations:
        spec["tolerations"] = [*(spec.get("tolerations") or ()), *(one.to_dict() for one in subset.tolerations)]
    if not subset.patch:
        return made
    try:
        return strategic_merge(made, json_copy(subset.patch), POD)
    except PatchError as error:
        raise SubsetError(f"patch of subset {subset.name}: {error}") from None


def _add_node_term(spec: dict[str, Any], term: Mapping[str, Any], subset: str) -> None:
    """Require the term in addition to each existing term. Raises SubsetError. [UD-31]"""
    more = {key: list(term[key]) for key in ("matchExpressions", "matchFields") if term.get(key)}
    if not more:
        return
    affinity = spec["affinity"] = {**as_object(spec.get("affinity"))}
    of_nodes = affinity["nodeAffinity"] = {**as_object(affinity.get("nodeAffinity"))}
    required = {**as_object(of_nodes.get("requiredDuringSchedulingIgnoredDuringExecution"))}
    of_nodes["requiredDuringSchedulingIgnoredDuringExecution"] = required
    terms = required.get("nodeSelectorTerms") or [{}]
    if problem := joining_problem(terms, term):
        raise SubsetError(f"nodeSelectorTerm of subset {subset}: {problem}")
    required["nodeSelectorTerms"] = [
        {**one, **{key: [*(one.get(key) or ()), *json_copy(added)] for key, added in more.items()}} for one in terms
    ]


# Ownership of the workloads of the subsets. [UD-32, UD-33]


@dataclass(frozen=True, slots=True)
class Claims:
    """Workloads to keep, delete, release and adopt. In a pair, the name of the template stands for the kind."""

    #: Workload by subset name.
    existing: Mapping[str, SubsetWorkload]
    #: Owned but surplus workloads: the subset was removed, the kind has changed, or the subset has another workload.
    surplus: Sequence[tuple[str, SubsetWorkload]]
    #: Owned workloads whose labels no longer match the selector.
    release: Sequence[tuple[str, SubsetWorkload]] = ()
    #: Workloads without a controller, for subsets that have no workload.
    adopt: Sequence[SubsetWorkload] = ()


def claim(
    kind: str,
    subsets: Collection[str],
    owned: Mapping[str, Sequence[SubsetWorkload]],
    orphans: Sequence[SubsetWorkload],
    matches: Callable[[Mapping[str, str]], bool],
) -> Claims:
    """Sort workloads into claims. ``owned`` is keyed by template; ``orphans`` are those of ``kind`` without a
    controller; ``matches`` is the selector.

    Surplus orphans are not adopted, because only workloads that were already owned may be deleted.
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
    for one in _oldest_first(orphans):
        if one.subset in subsets and one.subset not in existing and matches(one.metadata.labels):
            adopt.setdefault(one.subset, one)
    return Claims(existing, surplus, release, list(adopt.values()))


def _oldest_first(found: Sequence[SubsetWorkload]) -> list[SubsetWorkload]:
    living = [one for one in found if one.metadata.deletion_timestamp is None]
    return sorted(living, key=lambda one: (str(one.metadata.creation_timestamp or ""), one.metadata.name))


# Pods of a subset, and which of them block a rollout. [UD-50]


def is_of(resource: Resource, workload: SubsetWorkload, pod: Pod) -> bool:
    """Return whether a workload of that resource created the Pod. The Pods of a Deployment belong to its ReplicaSets,
    which are not cached; their names begin with that of the Deployment."""
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
    """Return outdated Pods of a native StatefulSet that are not ready, for which the StatefulSet would wait forever.
    [UD-50]

    ``update`` is the name of the UnitedDeployment's revision. If only the patch has changed, outdated Pods are
    recognized by the StatefulSet's own revision, once it has observed its current spec.
    """
    strategy, status = workload.spec.update_strategy or {}, workload.status
    if strategy.get("type") == ON_DELETE or workload.metadata.labels.get(names.UNITED_REVISION_HASH) != update:
        return []
    name, partition = workload.metadata.name, partition_of(STATEFUL_SET, workload)
    seen = status.observed_generation >= workload.metadata.generation and bool(status.update_revision)

    def is_old(pod: Pod) -> bool:
        labels = pod.metadata.labels
        if labels.get(names.UNITED_REVISION_HASH) != update:
            return True
        return seen and labels.get(names.CONTROLLER_REVISION_HASH) != status.update_revision

    return [
        pod
        for pod in pods
        if is_active(pod)
        and not is_running_and_ready(pod)
        and ordinal_of(name, pod.metadata.name) >= partition
        and is_old(pod)
    ]


# Content of a revision. [UD-42, UD-45]

KIND = WorkloadKind(UNITED_DEPLOYMENT.resource())


def content_of(united: UnitedDeployment) -> Content:
    """Return the content to record: only the template, as Go marshals it. [UD-42, UD-45]"""
    owner = KIND.owner(united.metadata)
    shown = as_printed({"spec": {"template": united.spec.template.to_dict() if united.spec.template else {}}})
    whole = shown["spec"]["template"]
    for name in NATIVE_FIELDS:
        if isinstance(given := whole.get(name), dict):
            given["spec"].setdefault("selector", None)
    data = dumps_go({"spec": {"template": {**whole, "$patch": "replace"}}}, sort_keys=True).encode()
    found = template_of(united.spec)
    labels = (found[1].get("metadata") or {}).get("labels") or {} if found is not None else {}
    return Content(owner, data, dict(labels), {})
