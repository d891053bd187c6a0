"""Maintain one NodeImage per Node: copy the Node's labels to it and remove expired tags. [IMG-30 … IMG-36]"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from random import Random
from typing import Any, Final

import msgspec

from app.api import names
from app.features.imagepull.cache import NodeImages
from app.features.imagepull.objects import BY_JOB, NODE_IMAGES, NodeImage, SecretReference, decode_node_image
from app.features.imagepull.plan import nodes as plan
from app.features.imagepull.plan.tags import CleanUp, clean, is_our_job
from app.features.imagepull.reconcile.jobs import JOBS
from app.features.imagepull.types import BATCH, ImagePullJob
from app.kube.client import Client, get_or_none, retry_conflicts
from app.kube.controller import Result
from app.kube.errors import ApiError, NotFound
from app.kube.events import EventRecorder, reference
from app.kube.objects import Metadata, Node, ObjectMeta, ObjectReference, decode_metadata
from app.kube.patches import merge_difference
from app.kube.resources import SECRETS, ObjectKey
from app.kube.statuses import create_for_node, delete_without_node
from app.kube.store import Change, Store
from app.pods.node_agents import may_run_agent

logger = logging.getLogger(__name__)

#: Minimum requeue delay, before jitter. [IMG-36]
SHORTEST_WAIT: Final = 3.0
WAIT_SPREAD: Final = 2.0
#: Maximum number of jobs for which an event about a failed tag is recorded.
_MAX_EVENTS: Final = 20


class NodeImageReconciler:
    """Reads the caches and carries out the plan."""

    def __init__(
        self,
        client: Client,
        nodes: Store[Node],
        node_images: Store[NodeImage],
        jobs: Store[ImagePullJob],
        events: EventRecorder,
        rng: Random,
        *,
        creation_delay: float,
        may_read_secrets: bool,
    ) -> None:
        self._client = client
        self._clock = client.clock
        self._nodes = nodes
        self._jobs = jobs
        self._node_images = NodeImages(client, node_images)
        self._events = events
        self._rng = rng
        self._creation_delay = creation_delay
        self._may_read_secrets = may_read_secrets

    def keys_for_node(self, change: Change[Node]) -> Iterable[ObjectKey]:
        """Return the key of the node. [IMG-30, IMG-107]"""
        node, name = change.new, change.object.metadata.name
        node_image = self._node_images.get(name)
        if not may_run_agent(node):
            return (ObjectKey("", name),) if node_image is not None else ()
        assert node is not None  # noqa: S101  # checked above
        if node_image is not None:
            return (ObjectKey("", name),) if node_image.metadata.labels != node.metadata.labels else ()
        ready = plan.creation_wait(node, self._creation_delay, self._clock.now())
        if ready is None:
            return ()
        old = change.old
        was = plan.creation_wait(old, self._creation_delay, self._clock.now()) if old is not None else None
        return (ObjectKey("", name),) if was is None else ()

    def keys_for_job(self, change: Change[ImagePullJob]) -> Iterable[ObjectKey]:
        """Return the nodes where a deleted job requested a tag. [IMG-30]"""
        if change.new is not None:
            return ()
        found = self._node_images.store.by_index(BY_JOB, change.object.metadata.uid)
        return [ObjectKey("", one.metadata.name) for one in found]

    async def __call__(self, key: ObjectKey) -> Result | None:
        """Reconcile the NodeImage of one node. [IMG-31]"""
        node, node_image = self._nodes.get(key.name), self._node_images.get(key.name)
        if not may_run_agent(node):
            if node_image is not None and not node_image.deleting:
                await self._delete(node_image)
            return None
        assert node is not None  # noqa: S101  # checked above
        if node_image is None:
            return await self._create(node)
        if node_image.deleting:
            return None
        facts = CleanUp(node.metadata.labels, await self._gone_jobs(node_image), await self._gone_secrets(node_image))
        now = self._clock.now()
        wanted = _json(node_image)
        wait = clean(wanted, facts, now)
        same_spec = wanted["spec"] == _json(node_image)["spec"]
        if not same_spec or wanted["metadata"]["labels"] != node_image.metadata.labels:
            if not (same_spec and await self._node_images.relabel(node_image, facts.labels)):
                await self._node_images.change(key.name, lambda live: clean(live, facts, now))
            return None  # the change requeues the key
        failures, later = plan.unanswered(node_image, now)
        if failures:
            await self._fail(node_image)
        waits = [one for one in (wait, later) if one is not None]
        if not waits:
            return None
        left = min(waits)
        return Result(requeue_after=left if left >= SHORTEST_WAIT else SHORTEST_WAIT + self._rng.random() * WAIT_SPREAD)

    async def _create(self, node: Node) -> Result | None:
        left = plan.creation_wait(node, self._creation_delay, self._clock.now())
        if left is None:
            return None
        if left > 0:
            return Result(requeue_after=left)
        name = node.metadata.name
        await create_for_node(self._client, NODE_IMAGES, name, node.metadata.labels)
        return None

    async def _delete(self, node_image: NodeImage) -> None:
        """Delete the NodeImage of a node that no longer exists. [IMG-31]"""
        metadata = node_image.metadata
        if names.FAKE_NODE_IMAGE in metadata.labels:
            return
        await delete_without_node(self._client, NODE_IMAGES, metadata, self._nodes)

    async def _gone_jobs(self, node_image: NodeImage) -> frozenset[str]:
        """Return the UIDs of tag owners that are deleted jobs. Jobs missing from the cache are looked up in the API
        server, as the cache may lag or not include their namespace; unreadable ones are kept. [IMG-32]"""
        owners = {
            owner.uid: owner
            for entry in node_image.spec.images.values()
            for tag in entry.tags
            for owner in tag.owner_references
            if is_our_job({"apiVersion": owner.api_version, "kind": owner.kind})
        }
        gone = set()
        for uid, owner in owners.items():
            cached = self._jobs.get(owner.name, owner.namespace)
            if cached is not None and cached.metadata.uid == uid:
                continue
            live: Metadata | None = None
            if owner.namespace:
                try:
                    live = await get_or_none(self._client, JOBS, owner.name, owner.namespace, decode=decode_metadata)
                except ApiError as error:
                    logger.debug("cannot read ImagePullJob %s/%s: %s", owner.namespace, owner.name, error)
                    continue
            if live is None or live.metadata.uid != uid:
                gone.add(uid)
        return frozenset(gone)

    async def _gone_secrets(self, node_image: NodeImage) -> frozenset[tuple[str, str]]:
        """Return the referenced pull secrets, except copies, that were deleted. Secrets are read only if ImagePullJobs
        are enabled; unreadable ones are kept. [IMG-32]"""
        if not self._may_read_secrets:
            return frozenset()
        wanted: dict[SecretReference, None] = {
            secret: None
            for entry in node_image.spec.images.values()
            for secret in entry.pull_secrets
            if secret.mode != BATCH and secret.name and secret.namespace
        }
        gone = set()
        for secret in wanted:
            try:
                await self._client.get(SECRETS, secret.name, secret.namespace, decode=decode_metadata)
            except NotFound:
                gone.add((secret.namespace, secret.name))
            except ApiError as error:
                logger.debug("cannot read Secret %s/%s: %s", secret.namespace, secret.name, error)
        return frozenset(gone)

    async def _fail(self, node_image: NodeImage) -> None:
        """Write the failures to the status and record events. [IMG-33 … IMG-35]"""
        for failure in await retry_conflicts(self._client, lambda _: self._write_failures(node_image.metadata)):
            self._record_events(node_image, failure)

    async def _write_failures(self, metadata: ObjectMeta) -> list[plan.Unanswered]:
        live = await self._client.get(NODE_IMAGES, metadata.name)
        failures = plan.unanswered(decode_node_image(msgspec.json.encode(live)), self._clock.now())[0]
        if live["metadata"]["uid"] != metadata.uid or not failures:
            return []
        status = plan.with_failures(live, failures, self._clock.now())
        body = {
            "metadata": {"resourceVersion": live["metadata"]["resourceVersion"]},
            "status": merge_difference(live.get("status") or {}, status),
        }
        await self._client.patch(NODE_IMAGES, metadata.name, body, subresource="status", decode=decode_metadata)
        return failures

    def _record_events(self, node_image: NodeImage, failure: plan.Unanswered) -> None:
        """Record an event on the NodeImage and on the jobs that requested the tag. [IMG-34]"""
        name, tag = failure.image.name, failure.image.tag
        text = f"Failed to pull image {name}:{tag} on node {node_image.metadata.name} for {failure.message}"
        owners = [
            ObjectReference(one.api_version, one.kind, one.namespace, one.name, one.uid)
            for one in failure.tag.owner_references[:_MAX_EVENTS]
        ]
        for regarding in (*owners, reference(NODE_IMAGES, node_image)):
            self._events.event(regarding, "Warning", "PullImageFailed", text)


def _json(node_image: NodeImage) -> dict[str, Any]:
    """Return, as JSON, the fields that the plan reads."""
    found: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(node_image))
    found.setdefault("spec", {}).setdefault("images", {})
    return found
