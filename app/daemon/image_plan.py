"""Image pulls of a node and their status in its NodeImage. Pure. [KD-30 … KD-40]"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from app.api import names
from app.daemon.cri.types import Image
from app.daemon.objects import ImageTagStatus, NodeImage, SecretReference, TagPullPolicy
from app.kube.images import FamiliarImage, familiar_image
from app.kube.objects import ObjectReference, Secret

WAITING: Final = "Waiting"
PULLING: Final = "Pulling"
SUCCEEDED: Final = "Succeeded"
FAILED: Final = "Failed"
IF_NOT_PRESENT: Final = "IfNotPresent"
DAEMON: Final = "kruise-daemon"
#: Defaults for NodeImages stored without them; the same values as in app/features/imagepull/defaults.py.
TIMEOUT_SECONDS: Final = 600
BACKOFF_LIMIT: Final = 3
LONGEST_PAUSE: Final = 30.0
NO_TIME_LEFT: Final = "pulling exceeds the activeDeadlineSeconds"
#: Maximum length of a message in a status, in characters and in bytes as stored. The controllers budget 1,536 bytes per
#: tag, so that long errors from one namespace's registry do not use up the space that others need.
MAX_MESSAGE: Final = 1024
MAX_MESSAGE_BYTES: Final = 1088


class Key(NamedTuple):
    """Repository and tag."""

    image: str
    tag: str


@dataclass(frozen=True, slots=True)
class Task:
    """One requested pull."""

    key: Key
    version: int
    policy: TagPullPolicy
    if_not_present: bool
    owners: tuple[ObjectReference, ...] = ()
    secrets: tuple[SecretReference, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)

    @property
    def reference(self) -> str:
        """Image reference passed to the runtime. [KD-35, IMG-100]"""
        return str(FamiliarImage(*self.key))

    @property
    def attempts(self) -> int:
        """Maximum number of attempts. [KD-34]"""
        limit = self.policy.backoff_limit
        return (BACKOFF_LIMIT if limit is None or limit < 0 else limit) + 1

    def attempt_seconds(self, elapsed: float) -> float:
        """Return the timeout of the next attempt, ``elapsed`` seconds after the first began; 0 if no time is left.
        [KD-34]"""
        seconds = float(self.policy.timeout_seconds or TIMEOUT_SECONDS)
        if seconds <= 0:
            seconds = float(TIMEOUT_SECONDS)
        deadline = self.policy.active_deadline_seconds
        return seconds if deadline is None else max(0.0, min(seconds, deadline - elapsed))


def may_use(task: Task, secret: Secret) -> bool:
    """Return whether the pull may use the Secret. A copy of a pull secret serves only jobs in the namespace it was
    copied from. [KD-97]

    All jobs for a repository share one NodeImage entry; without this check, each job could pull with the credentials of
    the others.
    """
    namespace = source_namespace(secret)
    return not namespace or not task.owners or namespace in {one.namespace for one in task.owners}


def source_namespace(secret: Secret) -> str:
    """Return the namespace that a pull secret was copied from; "" for a Secret that is not a copy."""
    return secret.metadata.annotations.get(names.COPIED_FROM, "").partition("/")[0]


def pause_after(attempt: int) -> float:
    """Return the back-off in seconds after the failed attempt ``attempt``, counted from 1. [KD-34]"""
    return min(LONGEST_PAUSE, 2.0 ** min(attempt - 1, 10))


def tasks(node_image: NodeImage) -> dict[Key, Task]:
    """Return every requested pull, finished or not."""
    found: dict[Key, Task] = {}
    for image, entry in node_image.spec.images.items():
        sandbox = entry.sandbox_config
        # Cluster policies may need to identify pulls by the node agent. [KD-35]
        annotations = {**sandbox.annotations, names.PULLED_BY: DAEMON}
        for tag in entry.tags:
            key = Key(image, tag.tag)
            found[key] = Task(
                key=key,
                version=tag.version,
                policy=tag.pull_policy,
                # Unset means Always. [KD-33]
                if_not_present=tag.image_pull_policy == IF_NOT_PRESENT,
                owners=tag.owner_references,
                secrets=entry.pull_secrets,
                labels=sandbox.labels,
                annotations=annotations,
            )
    return found


def finished(node_image: NodeImage) -> dict[Key, ImageTagStatus]:
    """Return the pulls of the requested version that the status reports as finished. [KD-31]"""
    wanted = tasks(node_image)
    return {
        key: status
        for image, entry in node_image.status.image_statuses.items()
        for status in entry.tags
        if (key := Key(image, status.tag)) in wanted
        and status.completion_time
        and status.version == wanted[key].version
    }


@dataclass(frozen=True, slots=True)
class Changes:
    """Pulls to start and to stop."""

    start: tuple[Task, ...]
    stop: tuple[Key, ...]


def changes(node_image: NodeImage | None, running: Mapping[Key, int]) -> Changes:
    """Return the pulls to start and stop. ``running`` maps each pull in progress to its version, including finished
    pulls that are not in the status yet. [KD-31]"""
    if node_image is None:
        return Changes((), tuple(running))
    wanted, done = tasks(node_image), finished(node_image)
    active = {key: task for key, task in wanted.items() if key not in done}
    stop = tuple(key for key, version in running.items() if key not in active or active[key].version != version)
    start = tuple(task for key, task in active.items() if running.get(key) != task.version)
    return Changes(start, stop)


def status_patch(node_image: NodeImage, progress: Mapping[Key, ImageTagStatus]) -> dict[str, Any] | None:
    """Return the merge patch for the status; None if it is up to date. The patch leaves all other fields unchanged.
    [KD-40]

    ``progress`` contains the pulls that the status does not report as finished.
    """
    wanted, done = tasks(node_image), finished(node_image)
    tags: dict[str, list[ImageTagStatus]] = {}
    for key in sorted(wanted, key=lambda key: (key.image, key.tag.encode())):
        status = done.get(key)
        if status is None:
            status = progress.get(key)
            if status is None or status.version != wanted[key].version:
                status = ImageTagStatus(key.tag, WAITING, version=wanted[key].version)
        tags.setdefault(key.image, []).append(status)
    phases = [status.phase for statuses in tags.values() for status in statuses]
    counts = {
        "desired": len(phases),
        "succeeded": phases.count(SUCCEEDED),
        "failed": phases.count(FAILED),
        "pulling": phases.count(PULLING),
        "waiting": phases.count(WAITING),
    }
    old = node_image.status
    patch: dict[str, Any] = {name: count for name, count in counts.items() if getattr(old, name) != count}
    images: dict[str, Any] = {
        image: {"tags": [_json(status) for status in statuses]}
        for image, statuses in tags.items()
        if image not in old.image_statuses or old.image_statuses[image].tags != tuple(statuses)
    }
    images |= {image: None for image in old.image_statuses if image not in tags}
    if images:
        # As in OpenKruise, an empty map is removed.
        patch["imageStatuses"] = images if tags else None
    return patch or None


def _json(status: ImageTagStatus) -> dict[str, Any]:
    found: dict[str, Any] = {"tag": status.tag, "phase": status.phase}
    for key, value in (
        ("progress", status.progress),
        ("startTime", status.start_time),
        ("completionTime", status.completion_time),
        ("version", status.version),
        ("imageID", status.image_id),
        ("message", status.message),
    ):
        if value:
            found[key] = value
    return found


def find(images: Sequence[Image], key: Key) -> Image | None:
    """Return the node's image with this tag or digest, or None if there is none. [KD-33, IMG-100]"""
    by_digest = ":" in key.tag
    for image in images:
        for text in image.digests if by_digest else image.tags:
            found = familiar_image(text)
            if found is not None and (found.name, found.tag) == key:
                return image
    return None


def image_id(key: Key, image: Image | None) -> str:
    """Return the image ID to report in the status. [KD-32]"""
    return f"{key.image}@{image.id}" if image is not None else ""


def joined(errors: Sequence[str]) -> str:
    """Join distinct errors as Go formats an aggregate error. [KD-37]"""
    each = list(dict.fromkeys(errors))
    return each[0] if len(each) == 1 else f"[{', '.join(each)}]"
