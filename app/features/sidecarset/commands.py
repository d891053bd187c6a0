"""Commands for SidecarSets, and their section of the dashboard."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from heapq import nsmallest
from typing import Any, Final

import orjson

from app.api import names
from app.api.webhooks import stored_model
from app.features.sidecarset.defaults import with_defaults
from app.features.sidecarset.history import set_owner
from app.features.sidecarset.injection.selection import SidecarSetIndex
from app.features.sidecarset.kind import RECORDED_FIELDS, SIDECAR_SET
from app.features.sidecarset.plan.missed_pods import lacking_sets
from app.features.sidecarset.plan.pod_state import Wait, pod_facts
from app.features.sidecarset.plan.preview import judged, obstacle, preview, standing
from app.features.sidecarset.plan.settings import SetView, injected_sets, recorded, set_view
from app.features.sidecarset.plan.status import PodCounts
from app.features.sidecarset.plan.update import partition_of
from app.features.sidecarset.types import NOT_UPDATE, SidecarSet
from app.framework.commands import (
    CHANGE_CAUSE,
    RESTARTED_AT,
    Commands,
    History,
    Progress,
    Recorded,
    Report,
    Stored,
    counted,
    unseen,
)
from app.framework.dashboard import NAMED, DashboardSection, Row, Shown, mapping, number, pods, text
from app.framework.options import Enabled
from app.kube.client import Client, get_or_none
from app.kube.clock import rfc3339
from app.kube.errors import CommandError, NotFound
from app.kube.jsonvalues import as_object
from app.kube.objects import (
    Namespace,
    OwnerReference,
    Pod,
    decode_controller_revision,
    decode_metadata,
    decode_namespace,
    decode_pod,
)
from app.kube.resources import (
    CONTROLLERREVISIONS,
    DAEMONSETS,
    DEPLOYMENTS,
    NAMESPACES,
    PODS,
    REPLICASETS,
    STATEFULSETS,
    ObjectKey,
)
from app.kube.selector_query import SelectorError
from app.kube.selectors import to_query
from app.pods.not_ready_reasons import Obstacle
from app.pods.predicates import is_active
from app.pods.revisions import Revision, in_order, of_owner, revision_of

#: Owners that recreate their Pods when their template is annotated.
_RESTARTED: Final = {one.kind: one for one in (DAEMONSETS, DEPLOYMENTS, STATEFULSETS)}


def parsed(obj: Mapping[str, Any]) -> SidecarSet:
    """Return the model of a stored (v1beta1) object. Raises CommandError."""
    return stored_model(SIDECAR_SET, SidecarSet, obj, with_defaults(obj))


def progress_of(owner: SidecarSet) -> Progress:
    """Return the rollout progress from the status. Pure."""
    strategy = owner.spec.update_strategy
    status = owner.status
    if status is None or status.observed_generation < owner.metadata.generation:
        return unseen(0)
    partition = strategy.partition if strategy.type != NOT_UPDATE else 0
    updated, ready = status.updated_pods, status.updated_ready_pods
    expected = status.matched_pods - partition_of(partition, status.matched_pods)
    text = f"{counted(updated, expected, 'Pods', status.matched_pods)}, {ready} ready"
    done = updated >= expected and ready >= expected
    kept = status.matched_pods - updated
    if done:
        text += f"; the partition keeps {kept} at the old revision" if kept > 0 else ""
    elif strategy.type == NOT_UPDATE:
        text += "; NotUpdate: only new Pods get the change"
    elif strategy.paused:
        text += f"; paused: pykruise rollout resume sidecarset {owner.name}"
    elif strategy.selector is not None:
        text += "; updateStrategy.selector excludes the others"
    return Progress(updated, ready, expected, done, "", text)


# ---- objects of a set


@dataclass(frozen=True, slots=True)
class RelatedObjects:
    """The Pods that a set's selector matches, all namespaces, and the set's revisions (oldest first)."""

    pods: Sequence[Pod]
    namespaces: Mapping[str, Namespace]
    revisions: Sequence[Revision]

    def labels_of(self, pod: Pod) -> Mapping[str, str] | None:
        found = self.namespaces.get(pod.metadata.namespace)
        return found.metadata.labels if found is not None else None

    def content_of(self, revision: str) -> Mapping[str, Any] | None:
        """Return the recorded content of a revision, or None if the revision was deleted."""
        return next((_content(one) for one in self.revisions if one.name == revision), None)


async def related_objects(client: Client, owner: SidecarSet) -> RelatedObjects:
    """Read the set's related objects from the cluster. Raises CommandError for an invalid selector."""
    try:
        query = to_query(owner.spec.selector)
    except SelectorError as error:
        raise CommandError(f"SidecarSet {owner.name}: spec.selector: {error}") from None
    pods = await client.list(PODS, label_selector=query, decode=decode_pod)
    namespaces = await client.list(NAMESPACES, decode=decode_namespace)
    # Revisions are in the manager's namespace, whose name the client does not know.
    label = f"{names.SIDECARSET_NAME}={owner.name}"
    revisions = await client.list(CONTROLLERREVISIONS, label_selector=label, decode=decode_controller_revision)
    return RelatedObjects(
        sorted(pods.items, key=lambda pod: (pod.metadata.namespace, pod.metadata.name)),
        {one.metadata.name: one for one in namespaces.items},
        in_order(of_owner(map(revision_of, revisions.items), set_owner(owner))),
    )


def _content(revision: Revision) -> Mapping[str, Any]:
    try:
        data = orjson.loads(revision.data)
    except orjson.JSONDecodeError:
        return {}
    spec = as_object(as_object(data).get("spec"))
    return {field: spec[field] for field in RECORDED_FIELDS if spec.get(field)}


@dataclass(frozen=True, slots=True)
class Situation:
    """The plan's input: a SidecarSet, its Pods and its revisions."""

    owner: SidecarSet
    view: SetView
    pod_counts: PodCounts
    related: RelatedObjects

    def obstacle(self, pod: Pod) -> str:
        """Return the field that prevents an in-place update of the Pod, or ''."""
        _, revision = recorded(pod.metadata.annotations, self.view.name)
        before = self.related.content_of(revision)
        return obstacle(before, self.owner.spec.to_dict()) if before is not None else ""


async def situation(client: Client, stored: Stored) -> Situation:
    """Read everything the plan needs. Raises CommandError."""
    owner = parsed(stored)
    related = await related_objects(client, owner)
    view = set_view(owner)
    injected = [pod for pod in related.pods if owner.name in injected_sets(pod.metadata.annotations)]
    return Situation(owner, view, judged(view, injected, related.labels_of), related)


# ---- commands


async def plan(client: Client, stored: Stored, _enabled: Enabled) -> Report:
    """Report how storing the set would affect running Pods."""
    found = await situation(client, stored)
    counts = found.pod_counts.counts
    head = f"SidecarSet {found.view.name}: {counts.matched} Pods matched, {counts.updated} of them already updated"
    steps = preview(found.view, found.pod_counts, client.clock.now(), found.obstacle)
    if not steps:
        return Report(head, notes=["no Pods are affected"])
    rows = [
        (str(one.number or "-"), one.pod.metadata.namespace, one.pod.metadata.name, one.action, one.reason)
        for one in steps
    ]
    return Report(head, ("step", "namespace", "pod", "action", "what"), rows)


async def explain(client: Client, stored: Stored, _enabled: Enabled) -> Report:
    """Report the matched Pods, what the outdated ones are waiting for, and selected Pods that were not injected."""
    found = await situation(client, stored)
    counts = found.pod_counts.counts
    head = (
        f"SidecarSet {found.view.name}: {counts.matched} Pods matched, {counts.updated} updated, "
        f"{counts.ready} ready, {found.pod_counts.blocked} not upgradable"
    )
    rows = []
    for one in found.pod_counts.all():
        word, why = standing(found.view, one, found.pod_counts, found.obstacle)
        if not one.facts.matched:
            why = _unmatched(found, one.pod)
        rows.append((one.pod.metadata.namespace, one.pod.metadata.name, word, why or "-"))
    rows += [
        (
            pod.metadata.namespace,
            pod.metadata.name,
            "not injected",
            "must be recreated: it has none of the SidecarSet's containers",
        )
        for pod in missed(found)
    ]
    stuck = found.pod_counts.blocked or any(row[2] == "not injected" for row in rows)
    todo = [_restart(found.view)] if stuck else ["nothing"]
    return Report(head, ("namespace", "pod", "state", "because"), rows, todo=todo)


def _restart(view: SetView) -> str:
    return f"pykruise rollout restart sidecarset {view.name}, so that the workloads recreate the affected Pods"


def missed(found: Situation) -> list[Pod]:
    """Return the active Pods that the set selects but has not injected."""
    view = found.view
    return [
        pod
        for pod in found.related.pods
        if is_active(pod)
        and view.name not in injected_sets(pod.metadata.annotations)
        and view.selects(pod, found.related.labels_of(pod))
    ]


def _unmatched(found: Situation, pod: Pod) -> str:
    if not is_active(pod):
        return "it has terminated or is being deleted"
    lacking = found.view.sidecars - {container.name for container in pod.spec.containers}
    if lacking:
        return f"it lacks container {', '.join(sorted(lacking))}; recreate it"
    return "its namespace or labels are no longer selected"


async def explain_pod(client: Client, pod: Pod, _enabled: Enabled) -> Sequence[str | Obstacle]:
    """Describe the SidecarSets that select a Pod or were injected into it."""
    lines: list[str | Obstacle] = []
    injected = injected_sets(pod.metadata.annotations)
    try:
        listed = await client.list(SIDECAR_SET.resource())
    except NotFound:
        return ()  # the kind is not installed
    namespace = await client.get(NAMESPACES, pod.metadata.namespace, decode=decode_namespace)
    for stored in listed.items:
        owner = parsed(stored)
        try:
            view = set_view(owner)
        except SelectorError:
            continue
        selected = view.selects(pod, namespace.metadata.labels)
        if view.name in injected:
            found = await situation(client, stored)
            facts = pod_facts(view, pod, namespace.metadata.labels)
            one = next((one for one in found.pod_counts.all() if one.pod.metadata.uid == pod.metadata.uid), None)
            word, why = (
                standing(view, one, found.pod_counts, found.obstacle) if one is not None else ("not matched", "")
            )
            revision = facts.revision
            at = f", revision {revision}" if revision else ""
            said = f"SidecarSet {view.name}: {word}{f' ({why})' if why else ''}{at}"
            stuck = facts.matched and not facts.updated and facts.wait is Wait.BLOCKED
            lines.append(Obstacle(said, _restart(view)) if stuck else said)
        elif selected and owner.spec.injection_strategy.paused:
            lines.append(f"SidecarSet {view.name}: selects it; its injection is paused")
        elif selected:
            created, since = pod.metadata.creation_timestamp, owner.metadata.creation_timestamp
            older = created is not None and since and created.isoformat()[:19] < since[:19]
            why = "the Pod is older than the set" if older else "the webhook was not called when it was created"
            said = f"SidecarSet {view.name}: selects it, but its containers are missing: {why}; recreate it"
            lines.append(Obstacle(said, _restart(view)))
    return lines


async def history(client: Client, stored: Stored) -> Sequence[Recorded]:
    """Return the recorded revisions, with the number of Pods at each."""
    found = await situation(client, stored)
    pods = [
        recorded(one.pod.metadata.annotations, found.view.name)[1]
        for one in found.pod_counts.all()
        if one.facts.matched
    ]
    choice = found.owner.spec.injection_strategy.revision
    latest = found.owner.status.latest_revision if found.owner.status is not None else ""
    rows = []
    for one in found.related.revisions:
        version = one.labels.get(names.SIDECARSET_CUSTOM_VERSION, "")
        roles = ["latest"] if one.name == latest else []
        if choice is not None and (choice.revision_name or "") == one.name:
            roles.append("injected")
        if version:
            roles.append(f"version {version}")
        cause = one.annotations.get(CHANGE_CAUSE, "<none>")
        rows.append(Recorded(one.number, one.name, pods.count(one.name), ",".join(roles) or "-", cause, _content(one)))
    return rows


def undo(stored: Stored, content: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """Return the patch operations that restore the recorded ``content``."""
    spec = stored.get("spec") or {}
    operations: list[Mapping[str, Any]] = []
    for field in RECORDED_FIELDS:
        if field in content:
            operations.append({"op": "add", "path": f"/spec/{field}", "value": content[field]})
        elif field in spec:
            operations.append({"op": "remove", "path": f"/spec/{field}"})
    return operations


async def restart(client: Client, stored: Stored) -> str:
    """Restart the workloads that own matched Pods, or selected Pods that were not injected. Each workload replaces its
    Pods according to its own update strategy, and the new Pods get the current sidecars."""
    found = await situation(client, stored)
    affected = [one.pod.metadata for one in found.pod_counts.all() if one.facts.matched]
    affected += [pod.metadata for pod in missed(found)]
    owners = Counter((pod.namespace, pod.controller or OwnerReference(kind="Pod", name=pod.name)) for pod in affected)
    workloads: Counter[tuple[str, str, str]] = Counter()
    for (namespace, owner), count in owners.items():
        workloads[await _workload(client, namespace, owner)] += count
    annotations = {RESTARTED_AT: rfc3339(client.clock.now())}
    patch = {"spec": {"template": {"metadata": {"annotations": annotations}}}}
    done: list[str] = []
    left: list[str] = []
    for (namespace, kind, name), count in sorted(workloads.items()):
        target = left
        if kind in _RESTARTED:
            with suppress(NotFound):
                await client.patch(_RESTARTED[kind], name, patch, namespace, field_manager="pykruise")
                target = done
        target.append(f"{kind} {namespace}/{name} ({pods(count)})")
    if not done and not left:
        raise CommandError(f"SidecarSet {found.view.name}: matches no Pod")
    parts = [f"restarted: {', '.join(done)}"] if done else []
    if left:
        parts.append(f"not restarted: {', '.join(left)}; use pykruise rollout restart KIND NAME, or delete the Pods")
    return "; ".join(parts)


async def _workload(client: Client, namespace: str, owner: OwnerReference) -> tuple[str, str, str]:
    """Return the namespace, kind and name of a Pod's workload; for a ReplicaSet, those of its Deployment, if any."""
    if (owner.kind, owner.group) == ("ReplicaSet", "apps"):
        found = await get_or_none(client, REPLICASETS, owner.name, namespace, decode=decode_metadata)
        if found is not None and found.metadata.controller is not None:
            owner = found.metadata.controller
    return namespace, owner.kind if owner.group == "apps" else f"{owner.kind}.{owner.group}".rstrip("."), owner.name


COMMANDS: Final = Commands(
    SIDECAR_SET,
    progress=lambda stored: progress_of(parsed(stored)),
    restart=restart,
    plan=plan,
    paused_at=("spec", "updateStrategy"),
    without_rollout=NOT_UPDATE,
    own_history=History(history, undo),
    containers_at=(("spec", "containers"), ("spec", "initContainers")),
    no_scale_in="owns no Pods; scale the workloads that own them",
    no_migration="owns no Pods; remove the container from the workload's template instead",
    explain_object=explain,
    explain_any=explain_pod,
)


class SidecarSetRow(Row):
    """A SidecarSet and the Pods that lack its containers."""

    matched: int
    updated: int
    ready: int
    lacking: int
    #: Some of the Pods that lack its containers, as namespace/name.
    lacking_pods: list[str]


class LackingSets(SidecarSetIndex):
    """Index that finds the sets whose containers a Pod lacks."""

    def lacking(self, pod: Pod, namespace_labels: Mapping[str, str]) -> Sequence[str]:
        return lacking_sets(pod, self, namespace_labels)


def row(stored: Stored, lacking: Collection[ObjectKey]) -> SidecarSetRow:
    """Return a SidecarSet's row. ``lacking`` holds the Pods that lack its containers."""
    status = mapping(stored, "status")
    matched, updated, ready = (number(status, field) for field in ("matchedPods", "updatedPods", "readyPods"))
    named = [f"{key.namespace}/{key.name}" for key in nsmallest(NAMED, lacking)]
    about = f"{updated} of {pods(matched)} updated, {ready} ready"
    if lacking:
        listed = ", ".join(named) + (" …" if len(lacking) > len(named) else "")
        shown = Shown(about=about, tone="bad", message=f"{pods(len(lacking))} without its containers: {listed}")
    else:
        shown = Shown(about=about, tone="good", message="no Pod lacks its containers")
    return SidecarSetRow(
        name=text(mapping(stored, "metadata"), "name"),
        shown=shown,
        matched=matched,
        updated=updated,
        ready=ready,
        lacking=len(lacking),
        lacking_pods=named,
    )


#: Sorted by the number of Pods that lack the containers, largest first.
SECTION: Final = DashboardSection(
    "sidecar_sets",
    "SidecarSets",
    SIDECAR_SET,
    SidecarSetRow,
    row,
    place=lambda one: (-one.lacking, one.name),
    judge=LackingSets,
)
