"""A CloneSet with its Pods and revisions, read from a cluster for the commands that speak of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from app.api.cloneset import CLONE_SET, CloneSet
from app.api.cloneset.defaults import with_defaults
from app.api.requested import unreadable
from app.cli.cluster import CommandError
from app.kube.client import Client
from app.kube.errors import NotFound
from app.kube.objects import Node, Pod, decode_controller_revision, decode_node, decode_pod
from app.kube.resources import CONTROLLERREVISIONS, NODES, PODS
from app.kube.selectors import SelectorError, to_query
from app.pods.predicates import is_active
from app.pods.ranking import NodeLabels
from app.pods.revisions import Create, Revision, current_revision, in_order, of_owner, plan_revision, revision_of
from app.workloads.cloneset.plan.orders import topology_keys
from app.workloads.cloneset.plan.resolved import KIND, ResolvedSpec, resolve_spec
from app.workloads.cloneset.plan.settings import Gates
from app.workloads.engine.pods import PodFacts, pod_facts
from app.workloads.engine.revisions import Revisions

RESOURCE = CLONE_SET.resource()
_WORDS = frozenset({"cloneset", "clonesets", "clone", "clonesets.apps.kruise.io", "cloneset.apps.kruise.io"})


def wanted_name(words: Sequence[str]) -> str:
    """The CloneSet that ``cloneset NAME``, ``cloneset/NAME`` or ``clone/NAME`` means. Raises CommandError."""
    parts = [part for word in words for part in word.split("/")]
    if len(parts) != 2 or not parts[1]:
        raise CommandError(f"{' '.join(words)}: expected cloneset NAME")
    if parts[0].lower() not in _WORDS:
        raise CommandError(f"{' '.join(words)}: {parts[0]} is no kind this command knows; it knows cloneset")
    return parts[1]


async def read_cloneset(client: Client, namespace: str, name: str) -> dict[str, Any]:
    """The stored object. Raises CommandError where there is none."""
    try:
        found: dict[str, Any] = await client.get(RESOURCE, name, namespace)
    except NotFound:
        raise CommandError(f"CloneSet {namespace}/{name}: not found; name another namespace with -n") from None
    return found


def parsed(obj: Mapping[str, Any]) -> CloneSet:
    """The model of a stored (v1beta1) object. Raises CommandError."""
    try:
        return CloneSet.model_validate(with_defaults(obj))
    except ValidationError as error:
        raise CommandError(f"CloneSet {obj['metadata']['name']}: {unreadable(error)}") from None


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What belongs to one CloneSet: Pods it controls, and its revisions, oldest first."""

    pods: Sequence[Pod]
    revisions: Sequence[Revision]
    nodes: Mapping[str, Node]

    def node_labels(self, name: str) -> Mapping[str, str] | None:
        """Labels of a node; None where it is not known."""
        node = self.nodes.get(name)
        return node.metadata.labels if node is not None else None


async def surroundings(client: Client, owner: CloneSet) -> Surroundings:
    """Read them from the cluster."""
    namespace, uid = owner.metadata.namespace, owner.metadata.uid
    query = to_query(owner.spec.selector)
    pods = await client.list(PODS, namespace, label_selector=query, decode=decode_pod)
    revisions = await client.list(
        CONTROLLERREVISIONS, namespace, label_selector=query, decode=decode_controller_revision
    )
    nodes: dict[str, Node] = {}
    if topology_keys(owner.spec.template):
        nodes = {node.metadata.name: node for node in (await client.list(NODES, decode=decode_node)).items}
    return Surroundings(
        [pod for pod in pods.items if (ref := KIND.managing_reference(pod.metadata)) is not None and ref.uid == uid],
        in_order(of_owner(map(revision_of, revisions.items), uid)),
        nodes,
    )


@dataclass(frozen=True, slots=True)
class Situation:
    """A CloneSet as the plan sees it: its resolved spec, active Pods, and revisions."""

    resolved: ResolvedSpec
    pods: Sequence[PodFacts]
    revisions: Revisions
    node_labels: NodeLabels


def situation(owner: CloneSet, around: Surroundings, gates: Gates) -> Situation:
    """Bring together what was read; the update revision may be one that is not recorded yet. Raises CommandError."""
    try:
        resolved = resolve_spec(owner, gates)
    except SelectorError as error:
        raise CommandError(f"CloneSet {owner.name}: spec.selector: {error}") from None
    status = owner.status
    collisions = (status.collision_count or 0) if status is not None else 0
    plan = plan_revision(owner.name, resolved.content.data, list(around.revisions), collisions)
    update = Revision(plan.name, plan.number, plan.data) if isinstance(plan, Create) else plan.revision
    ordered = [*(one for one in around.revisions if one.name != update.name), update]
    recorded = status.current_revision if status is not None else ""
    revisions = Revisions(current_revision(recorded, ordered, update), update, ordered, collisions)
    pods = [
        pod_facts(pod, resolved.settings)
        for pod in around.pods
        if is_active(pod) and resolved.selector.matches(pod.metadata.labels)
    ]
    return Situation(resolved, sorted(pods, key=lambda one: one.name), revisions, around.node_labels)
