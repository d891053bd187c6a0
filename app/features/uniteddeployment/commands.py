"""Commands for UnitedDeployments: rollout progress, plan, explain and history."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import orjson

from app.api import names
from app.api.webhooks import stored_model
from app.features.uniteddeployment.defaults import REPLICAS, with_defaults
from app.features.uniteddeployment.kind import UNITED_DEPLOYMENT
from app.features.uniteddeployment.plan import rollout
from app.features.uniteddeployment.plan.rollout import COLUMNS, Situation, explained, reserved_note, steps
from app.features.uniteddeployment.plan.status import PROGRESSING, UPDATED
from app.features.uniteddeployment.plan.subsets import (
    KIND,
    RESOURCES,
    Claims,
    SubsetWorkload,
    claim,
    content_of,
    decode_subset_workload,
    is_held,
    is_of,
)
from app.features.uniteddeployment.types import (
    ADVANCED_STATEFUL_SET,
    CLONE_SET,
    DEPLOYMENT,
    STATEFUL_SET,
    TEMPLATES,
    ShareError,
    UnitedDeployment,
    template_of,
)
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
from app.framework.options import Enabled
from app.kube.client import Client, get_or_none
from app.kube.clock import rfc3339
from app.kube.errors import CommandError, NotFound
from app.kube.objects import Pod, decode_controller_revision, decode_pod
from app.kube.resources import CONTROLLERREVISIONS, PODS
from app.kube.selector_query import SelectorError
from app.kube.selectors import compile_selector, to_query
from app.pods.predicates import is_active, is_controlled_by
from app.pods.revisions import Create, Revision, in_order, of_owner, plan_revision, revision_of
from app.workloads.settings import Revisions


@dataclass(frozen=True, slots=True)
class Read:
    """Inputs to a reconcile, as read from the cluster, and the workloads that the UnitedDeployment claims."""

    here: Situation
    claims: Claims
    #: Whether the current template is recorded in a revision.
    recorded: bool


def parsed(obj: Mapping[str, Any]) -> UnitedDeployment:
    """Return the model of a stored (v1beta1) object. Raises CommandError."""
    defaulted = {**with_defaults(obj), "status": obj.get("status")}
    united = stored_model(UNITED_DEPLOYMENT, UnitedDeployment, obj, defaulted)
    if template_of(united.spec) is None:
        raise CommandError(f"UnitedDeployment {united.name}: has no template")
    return united


async def pods_of(client: Client, stored: Mapping[str, Any]) -> Sequence[Pod]:
    """Return the Pods of all subsets."""
    found = (await read_situation(client, parsed(stored))).here
    return [pod for pods in found.pods.values() for pod in pods]


async def revisions_of(client: Client, united: UnitedDeployment) -> list[Revision]:
    """Return the recorded revisions, oldest first."""
    stored = await client.list(CONTROLLERREVISIONS, united.metadata.namespace or "", decode=decode_controller_revision)
    return in_order(of_owner(map(revision_of, stored.items), KIND.owner(united.metadata)))


async def read_situation(client: Client, united: UnitedDeployment) -> Read:
    """Read a reconcile's inputs from the cluster. The current revision may not be stored yet. Raises CommandError."""
    kind, template = template_of(united.spec) or ("", {})
    try:
        selector = compile_selector(united.spec.selector)
        query = to_query(united.spec.selector)
    except SelectorError as error:
        raise CommandError(f"UnitedDeployment {united.name}: spec.selector: {error}") from None
    namespace = united.metadata.namespace or ""
    owned = {kind: await _owned(client, kind, united) for kind in TEMPLATES}
    subsets = {one.name for one in united.spec.subsets}
    claims = claim(kind, subsets, owned, (), selector.matches)
    pods = (await client.list(PODS, namespace, label_selector=query, decode=decode_pod)).items
    of_subset = {
        name: [
            pod
            for pod in pods
            if pod.metadata.labels.get(names.SUBSET_NAME) == name and is_of(RESOURCES[kind], workload, pod)
        ]
        for name, workload in claims.existing.items()
    }
    content = content_of(united)
    known = await revisions_of(client, united)
    status = united.status.to_dict() if united.status is not None else {}
    plan = plan_revision(content.name, content.data, known, status.get("collisionCount") or 0)
    new = isinstance(plan, Create)
    update = Revision(plan.name, plan.number, plan.data) if isinstance(plan, Create) else plan.revision
    current = next((one for one in known if one.name == status.get("currentRevision")), update)
    here = Situation(
        united,
        kind,
        template,
        Revisions(current, update, [*known, *([update] if new else [])]),
        status,
        claims.existing,
        of_subset,
        client.clock.now(),
    )
    return Read(replace(here, **rollout.judged(here)), claims, not new)


async def _owned(client: Client, kind: str, united: UnitedDeployment) -> list[SubsetWorkload]:
    try:
        found = await client.list(
            RESOURCES[kind],
            united.metadata.namespace or "",
            label_selector=names.SUBSET_NAME,
            decode=decode_subset_workload,
        )
    except NotFound:
        return []  # the kind is not installed
    owner = KIND.owner(united.metadata)
    return [one for one in found.items if is_controlled_by(one.metadata, owner)]


RESOURCE: Final = UNITED_DEPLOYMENT.resource()
#: Path, within the spec of each template, to the object with the field ``paused``.
_PAUSED_AT: Final[Mapping[str, tuple[str, ...]]] = {
    DEPLOYMENT: (),
    CLONE_SET: ("updateStrategy", "rollingUpdate"),
    ADVANCED_STATEFUL_SET: ("updateStrategy", "rollingUpdate"),
}


def progress_of(stored: Stored) -> Progress:
    """Return the progress of the rollout according to the status. Pure."""
    united = parsed(stored)
    status, spec = united.status, united.spec
    replicas = REPLICAS if spec.replicas is None else spec.replicas
    if status is None or status.observed_generation < united.metadata.generation:
        return unseen(replicas)
    kind, template = template_of(spec) or ("", {})
    entries = status.subset_statuses or ()
    kept = sum(one.partition for one in entries) if kind != DEPLOYMENT else 0
    expected = max(0, replicas - kept)
    updated, ready = status.updated_replicas, status.ready_replicas
    count = counted(updated, expected, "Pods", status.replicas)
    if updated > expected and not kept:
        count = f"{updated} Pods updated, more than the {expected} requested"
    text = f"{count}, {ready} of {replicas} ready"
    done = status.updated_ready_replicas >= expected and ready >= replicas and status.replicas == replicas
    conditions = {one.type: one for one in status.conditions or ()}
    failed = ""
    progressing, last = conditions.get(PROGRESSING), conditions.get(UPDATED)
    if progressing is not None and progressing.status == "False":
        failed, done = progressing.message or progressing.reason, False
    if last is not None and last.status == "False":
        text, done = f"{text}; {last.message}", False
    elif done and kept:
        text += f"; partitions keep {kept} at the old revision"
    elif not done and is_held(kind, template):
        text += f"; {_held(united.name)}"
    if status.reserved_pods:
        text += f"; {status.reserved_pods} more wait for a node"
    return Progress(updated, min(updated, ready), expected, done, failed, text)


def _held(name: str) -> str:
    way = f"run pykruise rollout resume uniteddeployment {name}, or delete the Pods"
    return f"the rollout is paused or the strategy is OnDelete; {way}"


async def restart(client: Client, stored: Stored) -> str:
    """Replace all Pods with new ones, step by step in each subset."""
    united = parsed(stored)
    name = united.name
    kind, template = template_of(united.spec) or ("", {})
    if is_held(kind, template):
        raise CommandError(f"UnitedDeployment {name}: {_held(name)}")
    strategy = (template.get("spec") or {}).get("updateStrategy")
    rolling = strategy.get("rollingUpdate") if isinstance(strategy, dict) else None
    policy = str((rolling or {}).get("podUpdatePolicy") or "")
    if policy.startswith("InPlace"):
        why = f"{policy} updates Pods in place, so a new annotation would not restart them"
        way = "restart its subsets: pykruise rollout restart KIND NAME, with the names that pykruise explain shows"
        raise CommandError(f"UnitedDeployment {name}: {why}; {way}")
    annotations: dict[str, Any] = {"metadata": {"annotations": {RESTARTED_AT: rfc3339(client.clock.now())}}}
    patch = {"spec": {"template": {kind: {"spec": {"template": annotations}}}}}
    await client.patch(RESOURCE, name, patch, united.metadata.namespace or "", field_manager="pykruise")
    return "restarted"


def paused_at(stored: Stored) -> tuple[str, ...]:
    """Return the path of the field that pauses the rollout. Raises CommandError if the kind has no such field."""
    united = parsed(stored)
    kind, _ = template_of(united.spec) or ("", {})
    if kind not in _PAUSED_AT:
        raise CommandError(
            f"UnitedDeployment {united.name}: native StatefulSets cannot be paused; "
            "use spec.updateStrategy.manualUpdate.partitions to keep Pods at the old revision"
        )
    return ("spec", "template", kind, "spec", *_PAUSED_AT[kind])


async def plan(client: Client, stored: Stored, _enabled: Enabled) -> Report:
    """Return what the UnitedDeployment would do to its subsets if it were stored as given."""
    found = await read_situation(client, parsed(stored))
    here = found.here
    try:
        allocated = rollout.allocated(here)
    except ShareError as error:
        raise CommandError(f"UnitedDeployment {here.united.name}: {error}") from None
    wanted, errors = rollout.wanted(here, allocated.replicas)
    update = here.revisions.update.name
    changes = "" if found.recorded else f"the template changes, revision {update}; "
    total = sum(one.replicas for one in wanted.values())
    head = f"UnitedDeployment {here.united.name}: {changes}{total} Pods in {len(wanted)} subsets"
    rows = steps(here, wanted, [one for _, one in found.claims.surplus])
    notes = [] if rows else ["no subset changes"]
    return Report(head, ("subset", "workload", "action", "because"), rows, [*notes, *errors.values()])


async def explain_object(client: Client, stored: Stored, _enabled: Enabled) -> Report:
    """Return a report on the subsets."""
    here = (await read_situation(client, parsed(stored))).here
    try:
        replicas = rollout.allocated(here).replicas
        problem = [*rollout.wanted(here, replicas)[1].values()]
    except ShareError as error:
        replicas, problem = {}, [f"the shares cannot be met, so nothing is changed: {error}"]
    rows, notes, todo = explained(here, replicas)
    head = f"UnitedDeployment {here.united.name}: revision {here.revisions.update.name}"
    return Report(head, COLUMNS, rows, [*problem, *notes], todo)


async def explain_pod(client: Client, pod: Pod, _enabled: Enabled) -> Sequence[str]:
    """Return the subset and revision of a Pod."""
    if names.SUBSET_NAME not in pod.metadata.labels:
        return ()
    name = pod.metadata.labels.get(names.UNITED_REVISION_HASH, "").rpartition("-")[0]
    stored: dict[str, Any] | None = None
    if name:
        stored = await get_or_none(client, RESOURCE, name, pod.metadata.namespace)
    if stored is None:
        return ()
    here = (await read_situation(client, parsed(stored))).here
    subset = pod.metadata.labels[names.SUBSET_NAME]
    if not any(one.metadata.uid == pod.metadata.uid for one in here.pods.get(subset, ())):
        return ()
    revision = pod.metadata.labels[names.UNITED_REVISION_HASH]
    at = "the updated revision" if revision == here.revisions.update.name else f"the old revision {revision}"
    note = reserved_note(here, subset, pod)
    return (f"UnitedDeployment {name}: Pod of subset {subset}, at {at}{note}",)


async def recorded(client: Client, stored: Stored) -> Sequence[Recorded]:
    """Return the recorded revisions, oldest first."""
    united = parsed(stored)
    status = stored.get("status") or {}
    pods = [one for one in await pods_of(client, stored) if is_active(one)]
    found = []
    for one in await revisions_of(client, united):
        roles = [role for role, field in _ROLES if status.get(field) == one.name]
        count = sum(pod.metadata.labels.get(names.UNITED_REVISION_HASH) == one.name for pod in pods)
        cause = one.annotations.get(CHANGE_CAUSE, "<none>")
        found.append(Recorded(one.number, one.name, count, ",".join(roles) or "-", cause, _content(one)))
    return found


_ROLES: Final = (("current", "currentRevision"), ("update", "updatedRevision"))


def _content(revision: Revision) -> Mapping[str, Any]:
    """Return the template recorded in a revision; empty if it is unreadable."""
    try:
        data = orjson.loads(revision.data)
        template = data["spec"]["template"]
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return {}
    if not isinstance(template, dict):
        return {}
    return {key: _without_nulls(value) for key, value in template.items() if key in TEMPLATES}


def _without_nulls(value: Any) -> Any:
    """Drop null creationTimestamps, which Go writes for unset times."""
    if isinstance(value, dict):
        return {key: _without_nulls(one) for key, one in value.items() if key != "creationTimestamp" or one is not None}
    return [_without_nulls(one) for one in value] if isinstance(value, list) else value


def undo(_stored: Stored, content: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """Return the patch that restores a template."""
    return ({"op": "replace", "path": "/spec/template", "value": content},)


COMMANDS: Final = Commands(
    UNITED_DEPLOYMENT,
    progress=progress_of,
    restart=restart,
    plan=plan,
    explain_object=explain_object,
    explain_any=explain_pod,
    own_history=History(recorded, undo),
    paused_in=paused_at,
    pods=pods_of,
    no_migration="creates its own workloads and adopts none; create the UnitedDeployment, and scale in the old workload"
    " as it scales out",
    containers_at=tuple(
        ("spec", "template", kind, "spec", "template", "spec", field)
        for kind in (STATEFUL_SET, ADVANCED_STATEFUL_SET, CLONE_SET, DEPLOYMENT)
        for field in ("containers", "initContainers")
    ),
)
