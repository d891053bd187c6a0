"""The controllers of images: what they watch, and what a change concerns."""

from __future__ import annotations

from typing import Final

from app.api import names
from app.api.imagepull import IMAGE_LIST_PULL_JOB, IMAGE_PULL_JOB, NODE_IMAGE, ImageListPullJob, ImagePullJob
from app.kube.admission import PolicyRule
from app.kube.controller import Watch, to_self
from app.operations.imagepull.admission import DAEMON_GATE, JOB_GATE
from app.operations.imagepull.concerned import Caches
from app.operations.imagepull.indexes import BY_IMAGE, BY_POD_SELECTOR, by_image, by_pod_selector
from app.operations.imagepull.jobs import ImagePullJobReconciler
from app.operations.imagepull.lists import ImageListPullJobReconciler
from app.operations.imagepull.nodeimages import NodeImageReconciler
from app.operations.imagepull.objects import BY_JOB, NODE_IMAGES, NodeImage, decode_node_image, job_uids
from app.operations.imagepull.plan.lists import BY_LIST, by_list
from app.operations.imagepull.secrets import READING, WATCHED_COPIES
from app.pods.update_order import UpdateOrder
from app.slices import NODES, PODS_BY_NAMESPACE, ControllerContext, ControllerPart, Reconciling, Scope, Watched
from app.slices.watched import agents_namespace

#: The flags that these controllers read.
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
_EVENTS: Final = PolicyRule(("create", "patch"), ("",), ("events",))


def nodeimage_controller(context: ControllerContext) -> Reconciling:
    """One NodeImage per Node."""
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
    """ImagePullJobs."""
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
    concerned = reconciler.concerned
    return Reconciling(
        reconciler,
        [
            Watch(caches.pods, concerned.keys_for_pod, concerned.coalesce_delay),
            Watch(caches.nodes, concerned.keys_for_node, concerned.coalesce_delay),
            Watch(caches.node_images, concerned.keys_for_node_image, concerned.coalesce_delay),
            Watch(caches.lists, concerned.keys_for_list),
            Watch(caches.copies, concerned.keys_for_copy),
            Watch(caches.jobs, reconciler.keys_for_job),
        ],
    )


def imagelistpulljob_controller(context: ControllerContext) -> Reconciling:
    """ImageListPullJobs."""
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
        _EVENTS,
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
        _EVENTS,
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
        # An owner reference that blocks the owner's deletion may only be set by who may finalize the owner.
        PolicyRule(("update",), (names.APPS_GROUP,), (f"{IMAGE_LIST_PULL_JOB.plural}/finalizers",)),
        PolicyRule(("create", "delete"), (names.APPS_GROUP,), (IMAGE_PULL_JOB.plural,)),
        _EVENTS,
    ),
    gates=(JOB_GATE,),
)
