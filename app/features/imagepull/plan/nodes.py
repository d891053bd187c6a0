"""Nodes of a job, the lifecycle of NodeImages, and changes to them. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Protocol

from app.features.imagepull.objects import ImageEntry, ImageStatus, ImageTag, NodeImage, TagStatus
from app.features.imagepull.plan.tags import by_tag
from app.features.imagepull.types import FAILED, PULLING, SUCCEEDED, ImagePullTemplate
from app.kube.clock import parsed_rfc3339, rfc3339
from app.kube.images import FamiliarImage
from app.kube.objects import Node, ObjectMeta, Pod
from app.kube.selectors import EVERYTHING, Selector, compile_selector
from app.pods.node_agents import may_run_agent
from app.pods.predicates import is_active

# Nodes of a job. [IMG-43]


class Named(Protocol):
    """A Node or its NodeImage; both have the same name and labels."""

    @property
    def metadata(self) -> ObjectMeta: ...


@dataclass(frozen=True, slots=True)
class NodeRule:
    """A job's node selection: by Pods, by name or by label."""

    pods: Selector | None = None
    names: frozenset[str] | None = None
    labels: Selector = EVERYTHING

    @classmethod
    def of(cls, spec: ImagePullTemplate) -> NodeRule:
        """Compile the selection. Raises SelectorError if a selector is invalid."""
        if spec.pod_selector is not None:
            return cls(pods=compile_selector(spec.pod_selector))
        if spec.selector is None:
            return cls()
        if (chosen := spec.selector.get("names")) is not None:
            return cls(names=frozenset(chosen))
        return cls(labels=compile_selector({key: value for key, value in spec.selector.items() if key != "names"}))

    def nodes(self, of: Iterable[Named], pods: Iterable[Pod]) -> list[str]:
        """Return the names of the selected nodes, sorted. ``pods`` are those in the job's namespace; they are read
        only for a podSelector."""
        there = (one for one in of if one.metadata.deletion_timestamp is None)
        if self.pods is not None:
            wanted = {
                pod.spec.node_name for pod in pods if is_scheduled(pod) and self.pods.matches(pod.metadata.labels)
            }
            return sorted(one.metadata.name for one in there if one.metadata.name in wanted)
        return sorted(one.metadata.name for one in there if self.may_match(one))

    def may_match(self, node: Named) -> bool:
        """Return whether the node is selected, or may be selected because of its Pods."""
        if self.pods is not None:
            return True
        if self.names is not None:
            return node.metadata.name in self.names
        return self.labels.matches(node.metadata.labels)


def by_pods(nodes: Iterable[str], pods: Iterable[Pod]) -> tuple[str, ...]:
    """Return the nodes in the order of their Pods. Ties and nodes without Pods are ordered by name. [IMG-105]"""
    first: dict[str, int] = {}
    for index, pod in enumerate(pods):
        first.setdefault(pod.spec.node_name, index)
    return tuple(sorted(nodes, key=lambda name: (first.get(name, math.inf), name)))


def is_scheduled(pod: Pod) -> bool:
    """Return whether the Pod counts for ``podSelector``: it is assigned to a node and has not finished."""
    return bool(pod.spec.node_name) and is_active(pod)


# Lifecycle of NodeImages and failures of unresponsive nodes. [IMG-30 … IMG-36]

NOT_RESPONDED: Final = "node has not responded for a long time"
DEADLINE_EXCEEDED: Final = "pulling exceeds the activeDeadlineSeconds"
RESPONSE_SECONDS: Final = 600.0
#: Seconds a job waits for an overdue NodeImage.
LATE_SECONDS: Final = 60.0
_NO_STATUS: Final = ImageStatus()
Json = dict[str, Any]


def creation_wait(node: Node, delay: float, now: datetime) -> float | None:
    """Return the seconds until the node gets its NodeImage, or None if the node is not ready. [IMG-30]"""
    left = _until_due(node, delay, now)
    return max(0.0, left) if left is not None else None


def awaited(node: Node, delay: float, started: datetime, now: datetime) -> float | None:
    """Return the seconds a job still waits for the node's missing NodeImage, or None if it does not wait. [IMG-109]"""
    due = _until_due(node, delay, now) if may_run_agent(node) else None
    if due is None:
        return None
    left = max(due, (started - now).total_seconds()) + LATE_SECONDS
    return left if left > 0 else None


def _until_due(node: Node, delay: float, now: datetime) -> float | None:
    """Return the seconds until the node should have its NodeImage (negative if overdue); None if it is not ready."""
    for condition in node.status.conditions:
        if condition.type == "Ready" and condition.status == "True":
            since = condition.last_transition_time
            return delay - (now - since).total_seconds() if since is not None else 0.0
    return None


@dataclass(frozen=True, slots=True)
class Unanswered:
    """A tag whose status the node has failed to report in time."""

    image: FamiliarImage
    tag: ImageTag
    message: str


def unanswered(node_image: NodeImage, now: datetime) -> tuple[list[Unanswered], float | None]:
    """Return the tags to mark as failed, and the seconds until the next one times out. [IMG-33]"""
    found: list[Unanswered] = []
    waits: list[float] = []
    for name, entry in node_image.spec.images.items():
        statuses = node_image.status.image_statuses.get(name, _NO_STATUS).by_tag
        for tag in entry.tags:
            left = _seconds_left(tag, statuses.get(tag.tag), now)
            if left is None:
                continue
            seconds, message = left
            if seconds > 0:
                waits.append(seconds)
            else:
                found.append(Unanswered(FamiliarImage(name, tag.tag), tag, message))
    return found, min(waits) if waits else None


def _seconds_left(tag: ImageTag, status: TagStatus | None, now: datetime) -> tuple[float, str] | None:
    created = parsed_rfc3339(tag.created_at)
    if created is None:
        return None
    age = (now - created).total_seconds()
    if status is None or status.version != tag.version:
        return RESPONSE_SECONDS - age, NOT_RESPONDED
    deadline = tag.pull_policy.active_deadline_seconds if tag.pull_policy is not None else None
    if status.completion_time or deadline is None:
        return None
    return deadline + RESPONSE_SECONDS - age, DEADLINE_EXCEEDED


def with_failures(node_image: Json, failures: list[Unanswered], now: datetime) -> Json:
    """Return the status of a NodeImage (JSON) with these failures and updated counts. [IMG-33, IMG-35]"""
    spec = (node_image.get("spec") or {}).get("images") or {}
    status: Json = dict(node_image.get("status") or {})
    statuses = {name: dict(entry) for name, entry in (status.get("imageStatuses") or {}).items() if name in spec}
    for failure in failures:
        name, tag = failure.image.name, failure.image.tag
        wanted: Json = {"tag": tag, "phase": FAILED, "message": failure.message, "completionTime": rfc3339(now)}
        if failure.tag.version:
            wanted["version"] = failure.tag.version
        entry = statuses.setdefault(name, {})
        former: Json = next((one for one in entry.get("tags") or () if one.get("tag") == tag), {})
        if (former.get("version") or 0) == failure.tag.version and former.get("startTime"):
            wanted["startTime"] = former["startTime"]
        entry["tags"] = [*(one for one in entry.get("tags") or () if one.get("tag") != tag), wanted]
    for name, entry in statuses.items():
        tags = {one.get("tag") for one in spec[name].get("tags") or ()}
        entry["tags"] = sorted((one for one in entry.get("tags") or () if one.get("tag") in tags), key=by_tag)
    phases = [one.get("phase") for entry in statuses.values() for one in entry["tags"]]
    return {
        **status,
        "imageStatuses": statuses,
        "desired": sum(len(entry.get("tags") or ()) for entry in spec.values()),
        "pulling": phases.count(PULLING),
        "succeeded": phases.count(SUCCEEDED),
        "failed": phases.count(FAILED),
        # Only the node agent can count these tags, so its value is kept.
        "waiting": status.get("waiting") or 0,
    }


# Changes to a NodeImage that affect jobs. [IMG-40, IMG-106]

_NO_ENTRY: Final = ImageEntry()


def changed_images(old: NodeImage, new: NodeImage) -> set[str]:
    """Return the repositories whose spec or status changed."""
    found = _differing(old.spec.images, new.spec.images)
    return found | _differing(old.status.image_statuses, new.status.image_statuses)


def changed_tags(name: str, old: NodeImage, new: NodeImage) -> set[str] | None:
    """Return the tags of a repository whose spec or status changed, or None if a field that all its tags share
    changed. [IMG-40]"""
    before, after = old.spec.images.get(name, _NO_ENTRY), new.spec.images.get(name, _NO_ENTRY)
    if before.pull_secrets != after.pull_secrets:
        return None
    was, now = (one.status.image_statuses.get(name, _NO_STATUS) for one in (old, new))
    return _differing(before.by_tag, after.by_tag) | _differing(was.by_tag, now.by_tag)


def has_other_tag(node_image: NodeImage, image: FamiliarImage, uid: str) -> bool:
    """Return whether the job requested any tag other than this image's. [IMG-106]"""
    return any(
        (name, tag.tag) != (image.name, image.tag) and entry.is_wanted(tag, uid)
        for name, entry in node_image.spec.images.items()
        for tag in entry.tags
    )


def _differing(old: Mapping[str, Any], new: Mapping[str, Any]) -> set[str]:
    return {name for name in old.keys() | new.keys() if old.get(name) != new.get(name)}
