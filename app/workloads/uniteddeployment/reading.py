"""A UnitedDeployment's situation as the command line reads it from the cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from app.api import names
from app.api.requested import stored_model
from app.api.uniteddeployment import UNITED_DEPLOYMENT, UnitedDeployment
from app.api.uniteddeployment.defaults import with_defaults
from app.api.uniteddeployment.types import TEMPLATES, template_of
from app.kube.client import Client
from app.kube.errors import CommandError, NotFound
from app.kube.lookup import get_or_none
from app.kube.objects import Pod, decode_controller_revision, decode_pod
from app.kube.resources import CONTROLLERREVISIONS, PODS
from app.kube.selectors import SelectorError, compile_selector, to_query
from app.pods.owners import is_controlled_by
from app.pods.revisions import Create, Revision, in_order, of_owner, plan_revision, revision_of
from app.workloads.engine.revisions import Revisions
from app.workloads.uniteddeployment.controller import RESOURCES
from app.workloads.uniteddeployment.plan import situation
from app.workloads.uniteddeployment.plan.claiming import Claims, claim
from app.workloads.uniteddeployment.plan.pods import is_of
from app.workloads.uniteddeployment.plan.revision import KIND, content_of
from app.workloads.uniteddeployment.plan.situation import Situation
from app.workloads.uniteddeployment.plan.subsets import SubsetWorkload, decode_subset_workload


@dataclass(frozen=True, slots=True)
class Read:
    """The situation, and workloads that are no subset's any more."""

    here: Situation
    claims: Claims
    #: Whether the present template is recorded already.
    recorded: bool


def parsed(obj: Mapping[str, Any]) -> UnitedDeployment:
    """The model of a stored (v1beta1) object. Raises CommandError."""
    defaulted = {**with_defaults(obj), "status": obj.get("status")}
    united = stored_model(UNITED_DEPLOYMENT, UnitedDeployment, obj, defaulted)
    if template_of(united.spec) is None:
        raise CommandError(f"UnitedDeployment {united.name}: has no template")
    return united


async def pods_of(client: Client, stored: Mapping[str, Any]) -> Sequence[Pod]:
    """The Pods of all its subsets."""
    found = (await read_situation(client, parsed(stored))).here
    return [pod for pods in found.pods.values() for pod in pods]


async def revisions_of(client: Client, united: UnitedDeployment) -> list[Revision]:
    """Those that were recorded, oldest first."""
    stored = await client.list(CONTROLLERREVISIONS, united.metadata.namespace or "", decode=decode_controller_revision)
    return in_order(of_owner(map(revision_of, stored.items), KIND.owner(united.metadata)))


async def read_situation(client: Client, united: UnitedDeployment) -> Read:
    """Read what belongs to it; the present revision may be one that is not recorded yet. Raises CommandError."""
    given = template_of(united.spec)
    if given is None:
        raise CommandError(f"UnitedDeployment {united.name}: has no template")
    try:
        selector = compile_selector(united.spec.selector)
        query = to_query(united.spec.selector)
    except SelectorError as error:
        raise CommandError(f"UnitedDeployment {united.name}: spec.selector: {error}") from None
    namespace = united.metadata.namespace or ""
    owned = {kind: await _owned(client, kind, united) for kind in TEMPLATES}
    topology = united.spec.topology
    subsets = {one.name for one in (topology.subsets or ())} if topology is not None else set()
    claims = claim(given[0], subsets, owned, (), selector.matches)
    pods = (await client.list(PODS, namespace, label_selector=query, decode=decode_pod)).items
    of_subset = {
        name: [
            pod
            for pod in pods
            if pod.metadata.labels.get(names.SUBSET_NAME) == name and is_of(RESOURCES[given[0]], workload, pod)
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
        *given,
        Revisions(current, update, [*known, *([update] if new else [])]),
        status,
        claims.existing,
        of_subset,
        client.clock.now(),
    )
    return Read(replace(here, **situation.judged(here)), claims, not new)


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


def united_key(pod: Pod) -> str:
    """The name of the UnitedDeployment whose revision a Pod carries; '' for none."""
    if names.SUBSET_NAME not in pod.metadata.labels:
        return ""
    return pod.metadata.labels.get(names.UNITED_REVISION_HASH, "").rpartition("-")[0]


async def read_united(client: Client, namespace: str, name: str) -> dict[str, Any] | None:
    """One object; None if there is none of that name."""
    return await get_or_none(client, UNITED_DEPLOYMENT.resource(), name, namespace)
