"""Feature declaration: the three controllers, and the lookup of node agents for other features."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from app.api import names
from app.features.imagepull import webhooks
from app.features.imagepull.cache import BY_IMAGE, BY_POD_SELECTOR, by_image, by_pod_selector
from app.features.imagepull.kind import IMAGE_LIST_PULL_JOB, IMAGE_PULL_JOB, NODE_IMAGE
from app.features.imagepull.objects import BY_JOB, NODE_IMAGES, NodeImage, decode_node_image, job_uids
from app.features.imagepull.plan.jobs import BY_LIST, by_list
from app.features.imagepull.reconcile.jobs import ImagePullJobReconciler
from app.features.imagepull.reconcile.lists import ImageListPullJobReconciler
from app.features.imagepull.reconcile.mappers import COALESCE_SECONDS, Caches
from app.features.imagepull.reconcile.nodeimages import NodeImageReconciler
from app.features.imagepull.secrets import READING, WATCHED_COPIES
from app.features.imagepull.types import ImageListPullJob, ImagePullJob
from app.features.imagepull.webhooks import DAEMON_GATE, JOB_GATE
from app.framework.feature import (
    AdmissionContext,
    AdmissionPart,
    ControllerContext,
    ControllerPart,
    Decisions,
    Feature,
    Provides,
    Reconciling,
    lazily,
)
from app.framework.watched import NODES, PODS, PODS_BY_NAMESPACE, Scope, Watched, agents_namespace
from app.kube.admission import PolicyRule
from app.kube.controller import Watch, to_self
from app.kube.objects import Pod
from app.kube.store import Store
from app.pods.node_agents import NodeAgents, NoNodeAgents
from app.pods.sorting import UpdateOrder

#: Flags read by these controllers.
FLAGS: Final = ("nodeimage-creation-delay", "default-ttlseconds-for-always-nodeimage", "image-share-per-namespace")
WATCHED_NODE_IMAGES: Final[Watched[NodeImage]] = Watched(
    "NodeImages", NODE_IMAGES, decode_node_image, Scope.CLUSTER, indexes={BY_JOB: job_uids}
)
JOBS: Final = Watched.kind(
    IMAGE_PULL_JOB,
    ImagePullJob,
    **{BY_IMAGE: by_image, BY_POD_SELECTOR: by_pod_selector, BY_LIST: by_list},
)
LISTS: Final = Watched.kind(IMAGE_LIST_PULL_JOB, ImageListPullJob)


def nodeimage_controller(context: ControllerContext) -> Reconciling:
    """Build the NodeImage controller."""
    nodes, node_images, jobs = context.stores(NODES), context.stores(WATCHED_NODE_IMAGES), context.stores(JOBS)
    reconciler = NodeImageReconciler(
        context.client,
        nodes,
        node_images,
        jobs,
        context.events,
        context.rng,
        creation_delay=context.flags.seconds("nodeimage-creation-delay"),
        may_read_secrets=context.enabled(JOB_GATE),
    )
    return Reconciling(
        reconciler,
        [
            Watch(nodes, reconciler.keys_for_node),
            Watch(jobs, reconciler.keys_for_job),
            Watch(node_images, to_self),
        ],
    )


def imagepulljob_controller(context: ControllerContext) -> Reconciling:
    """Build the ImagePullJob controller."""
    caches = Caches(
        context.stores(JOBS),
        context.stores(NODES),
        context.stores(WATCHED_NODE_IMAGES),
        context.stores(PODS_BY_NAMESPACE),
        context.stores(WATCHED_COPIES),
        context.stores(LISTS),
    )
    reconciler = ImagePullJobReconciler(
        context.client,
        caches,
        context.events,
        context.rng,
        secrets_namespace=agents_namespace(),
        base_ttl=context.flags.integer("default-ttlseconds-for-always-nodeimage"),
        creation_delay=context.flags.seconds("nodeimage-creation-delay"),
        orders=context.provided(UpdateOrder),
        share=context.flags.integer("image-share-per-namespace"),
    )
    job_mapper = reconciler.job_mapper
    return Reconciling(
        reconciler,
        [
            Watch(caches.pods, job_mapper.keys_for_pod, COALESCE_SECONDS),
            Watch(caches.nodes, job_mapper.keys_for_node, COALESCE_SECONDS),
            Watch(caches.node_images, job_mapper.keys_for_node_image, COALESCE_SECONDS),
            Watch(caches.lists, job_mapper.keys_for_list),
            Watch(caches.copies, job_mapper.keys_for_copy),
            Watch(caches.jobs, reconciler.keys_for_job),
        ],
    )


def imagelistpulljob_controller(context: ControllerContext) -> Reconciling:
    """Build the ImageListPullJob controller."""
    lists, jobs = context.stores(LISTS), context.stores(JOBS)
    reconciler = ImageListPullJobReconciler(context.client, lists, jobs, context.events)
    return Reconciling(reconciler, [Watch(jobs, reconciler.keys_for_job), Watch(lists, to_self)])


NODE_IMAGE_CONTROLLER: Final = ControllerPart(
    "nodeimage-controller",
    watched=(NODES, WATCHED_NODE_IMAGES, JOBS),
    make=nodeimage_controller,
    permissions=(
        PolicyRule(("get", "create", "patch", "delete"), (names.APPS_GROUP,), (NODE_IMAGE.plural,)),
        PolicyRule(("patch",), (names.APPS_GROUP,), (f"{NODE_IMAGE.plural}/status",)),
        PolicyRule(("get",), (names.APPS_GROUP,), (IMAGE_PULL_JOB.plural,)),
        PolicyRule(("get",), ("",), ("nodes",)),
    ),
    gates=(DAEMON_GATE,),
    workers_flag="nodeimage-workers",
)
IMAGE_PULL_JOB_CONTROLLER: Final = ControllerPart(
    "imagepulljob-controller",
    watched=(JOBS, NODES, WATCHED_NODE_IMAGES, PODS_BY_NAMESPACE, WATCHED_COPIES, LISTS),
    make=imagepulljob_controller,
    permissions=(
        PolicyRule(("get", "patch", "delete"), (names.APPS_GROUP,), (IMAGE_PULL_JOB.plural,)),
        PolicyRule(("patch",), (names.APPS_GROUP,), (f"{IMAGE_PULL_JOB.plural}/status",)),
        PolicyRule(("get", "patch"), (names.APPS_GROUP,), (NODE_IMAGE.plural,)),
        PolicyRule(("get", "create", "patch", "delete"), ("",), ("secrets",), namespace=agents_namespace()),
        READING,
    ),
    gates=(JOB_GATE,),
    workers_flag="imagepulljob-workers",
)
IMAGE_LIST_PULL_JOB_CONTROLLER: Final = ControllerPart(
    "imagelistpulljob-controller",
    watched=(LISTS, JOBS),
    make=imagelistpulljob_controller,
    permissions=(
        PolicyRule(("get", "patch", "delete"), (names.APPS_GROUP,), (IMAGE_LIST_PULL_JOB.plural,)),
        PolicyRule(("patch",), (names.APPS_GROUP,), (f"{IMAGE_LIST_PULL_JOB.plural}/status",)),
        # Setting blockOwnerDeletion requires update access to the owner's finalizers.
        PolicyRule(("update",), (names.APPS_GROUP,), (f"{IMAGE_LIST_PULL_JOB.plural}/finalizers",)),
        PolicyRule(("create", "delete"), (names.APPS_GROUP,), (IMAGE_PULL_JOB.plural,)),
    ),
    gates=(JOB_GATE,),
)


BY_AGENT_NODE: Final = "node with an agent"
#: Key and value of the label on node agent Pods, which run in the manager's namespace.
_AGENT: Final = ("control-plane", "daemon")


def agent_nodes(pod: Pod) -> Sequence[str]:
    """Index node agent Pods, and Pods that an agent reports on, by node."""
    agent = pod.metadata.labels.get(_AGENT[0]) == _AGENT[1]
    shown = agent or names.RUNTIME_CONTAINERS_META in pod.metadata.annotations
    return (pod.spec.node_name,) if shown and pod.spec.node_name else ()


AGENT_PODS: Final[Watched[Pod]] = PODS.indexed(**{BY_AGENT_NODE: agent_nodes})


def node_agents(context: ControllerContext) -> NodeAgents:
    """Return the lookup of node agents for workload controllers. With the gate off, no node has an agent."""
    if not context.enabled(DAEMON_GATE):
        return NoNodeAgents()
    return KnownNodeAgents(context.stores(WATCHED_NODE_IMAGES), context.stores(AGENT_PODS), context.own_namespace)


class KnownNodeAgents:
    """Finds node agents in the caches. ``namespace`` is the manager's own namespace."""

    def __init__(self, node_images: Store[NodeImage], pods: Store[Pod], namespace: str) -> None:
        self._node_images = node_images
        self._pods = pods
        self._namespace = namespace

    def runs_on(self, node: str) -> bool:
        """Return whether the node has an agent: its NodeImage has a status, or a Pod on the node indicates one."""
        image = self._node_images.get(node)
        if image is not None and image.status.image_statuses:
            return True
        return any(
            names.RUNTIME_CONTAINERS_META in pod.metadata.annotations
            or (pod.metadata.namespace == self._namespace and pod.metadata.deletion_timestamp is None)
            for pod in self._pods.by_index(BY_AGENT_NODE, node)
        )


def decisions(context: AdmissionContext) -> Decisions:
    """Return the webhook handlers."""
    return Decisions(webhooks.handlers(context.clock, context.enabled))


FEATURE: Final = Feature(
    name="imagepull",
    kinds=(IMAGE_PULL_JOB, IMAGE_LIST_PULL_JOB, NODE_IMAGE),
    controllers=(NODE_IMAGE_CONTROLLER, IMAGE_PULL_JOB_CONTROLLER, IMAGE_LIST_PULL_JOB_CONTROLLER),
    # Served even if the gates are off, so that requests are denied with a message that names the gates. [IMG-2]
    admission=(AdmissionPart(decisions, webhooks=webhooks.WEBHOOKS),),
    provides=(Provides(NodeAgents, node_agents, watched=(WATCHED_NODE_IMAGES, AGENT_PODS)),),
    gates=(DAEMON_GATE, JOB_GATE),
    flags=FLAGS,
    explain_node=lazily("app.features.imagepull.commands:explain_node"),
    verbs=lazily("app.features.imagepull.commands:PULL"),
)
