"""Maps changes in the cluster to the ImagePullJobs to reconcile. [IMG-40 … IMG-42, IMG-104, IMG-109, IMG-111]"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from app.features.imagepull.cache import BY_IMAGE, BY_POD_SELECTOR, NodeImages, WaitingJobs, tag_key
from app.features.imagepull.objects import NodeImage
from app.features.imagepull.plan.jobs import BY_LIST, is_active
from app.features.imagepull.plan.lists import owner_of
from app.features.imagepull.plan.nodes import Named, NodeRule, changed_images, changed_tags, is_scheduled
from app.features.imagepull.secrets import PullSecret, job_keys
from app.features.imagepull.types import ImageListPullJob, ImagePullJob
from app.kube.objects import Node, Pod
from app.kube.resources import ObjectKey
from app.kube.selector_query import SelectorError
from app.kube.store import Change, Store, key_of
from app.pods.node_agents import is_ready, may_run_agent

logger = logging.getLogger(__name__)

#: Seconds over which changes to nodes and Pods are coalesced.
COALESCE_SECONDS: Final = 0.2


@dataclass(frozen=True, slots=True)
class Caches:
    """Caches that the controller reads."""

    jobs: Store[ImagePullJob]
    nodes: Store[Node]
    node_images: Store[NodeImage]
    pods: Store[Pod]
    copies: Store[PullSecret]
    lists: Store[ImageListPullJob]


class JobMapper:
    """Maps changes to the jobs to reconcile. ``waiting`` holds the jobs waiting for room in a NodeImage."""

    def __init__(self, caches: Caches, node_images: NodeImages, waiting: WaitingJobs) -> None:
        self._caches = caches
        self._node_images = node_images
        self._waiting = waiting
        #: Job UID → the job's generation and compiled selectors.
        self._rules: dict[str, tuple[int, NodeRule | None]] = {}

    def forget(self, job: ImagePullJob) -> None:
        self._rules.pop(job.metadata.uid, None)
        self._waiting.remove(key_of(job))

    def keys_for_list(self, change: Change[ImageListPullJob]) -> Iterable[ObjectKey]:
        """Return the jobs of a completed or deleted list; their TTL applies from now on. [IMG-104]"""
        if change.new is not None and is_active(change.new):
            return ()
        return [key_of(job) for job in self._caches.jobs.by_index(BY_LIST, owner_of(change.object).index_key)]

    def keys_for_node_image(self, change: Change[NodeImage]) -> Iterable[ObjectKey]:
        """Return the jobs that gain or lose the node, those whose image changed on it [IMG-40], and those waiting for
        room [IMG-111]."""
        old, new = change.old, change.new
        if new is None:
            self._waiting.forget_node(change.object.metadata.name)
        if old is None or new is None or old.deleting != new.deleting:
            return [key_of(job) for job in self._caches.jobs.list() if is_active(job) and self._may(job, change.object)]
        found: dict[ObjectKey, None] = {}
        if old.metadata.labels != new.metadata.labels:
            for job in self._caches.jobs.list():
                if is_active(job) and self._may(job, old) != self._may(job, new):
                    found[key_of(job)] = None
        for image in changed_images(old, new):
            # A namespace may have thousands of jobs for one repository.
            tags = changed_tags(image, old, new)
            for key in [image] if tags is None else [tag_key(image, tag) for tag in tags]:
                found |= {key_of(job): None for job in self._caches.jobs.by_index(BY_IMAGE, key) if self._may(job, new)}
        return found | dict.fromkeys(self._waiting.woken(old, new, lambda key: self._may_key(key, new)))

    def keys_for_node(self, change: Change[Node]) -> Iterable[ObjectKey]:
        """Return the jobs that wait for the NodeImage of a node that became ready or was deleted. [IMG-109]"""
        old, new = change.old, change.new
        if _ready(old) == _ready(new) or self._node_images.get(change.object.metadata.name) is not None:
            return ()
        return [key_of(job) for job in self._caches.jobs.list() if is_active(job) and self._may(job, change.object)]

    def keys_for_copy(self, change: Change[PullSecret]) -> Iterable[ObjectKey]:
        """Return the deleted jobs that the copy of a pull secret still lists when the controller starts. [IMG-65]"""
        if change.old is not None or change.new is None:
            return ()
        return [key for key in job_keys(change.new) if self._caches.jobs.by_key(key) is None]

    def keys_for_pod(self, change: Change[Pod]) -> Iterable[ObjectKey]:
        """Return the jobs whose podSelector matches the Pod. [IMG-41]"""
        old, new = change.old, change.new
        if old is not None and new is not None and _same_place(old, new):
            return ()
        jobs = self._caches.jobs.by_index(BY_POD_SELECTOR, change.object.metadata.namespace)
        found: dict[ObjectKey, None] = {}
        for job in jobs:
            rule = self.rule(job)
            selector = rule.pods if rule is not None else None
            placed = (pod for pod in (old, new) if pod is not None and pod.spec.node_name)
            if selector is not None and any(selector.matches(pod.metadata.labels) for pod in placed):
                found[key_of(job)] = None
        return found

    def rule(self, job: ImagePullJob) -> NodeRule | None:
        metadata = job.metadata
        known = self._rules.get(metadata.uid)
        if known is not None and known[0] == metadata.generation:
            return known[1]
        try:
            rule: NodeRule | None = NodeRule.of(job.spec)
        except SelectorError as error:
            logger.warning("ignoring ImagePullJob %s: %s", key_of(job), error)
            rule = None
        self._rules[metadata.uid] = (metadata.generation, rule)
        return rule

    def _may(self, job: ImagePullJob, node: Named) -> bool:
        rule = self.rule(job)
        return rule is not None and rule.may_match(node)

    def _may_key(self, key: ObjectKey, node: Named) -> bool:
        job = self._caches.jobs.by_key(key)
        return job is not None and self._may(job, node)


def _ready(node: Node | None) -> bool:
    return node is not None and may_run_agent(node) and is_ready(node)


def _same_place(old: Pod, new: Pod) -> bool:
    return (
        old.metadata.labels == new.metadata.labels
        and old.spec.node_name == new.spec.node_name
        and is_scheduled(old) == is_scheduled(new)
    )
