"""Commands that change a workload: pause, resume, restart, set images, scale in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from app.cli.kinds import known, owned, read, scope, wanted
from app.kube.errors import CommandError, WrongCommandError
from app.kube.text import first_of

#: Maximum number of existing Pods named in the error about a missing one.
_NAMED: Final = 5

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from app.framework.commands import Commands
    from app.kube.client import Client


def shown(commands: Commands, name: str) -> str:
    """Return an object's name as kubectl prints it before the result."""
    return f"{commands.kind.singular}.{commands.kind.group}/{name}"


async def changed(
    client: Client,
    commands: Commands,
    stored: Mapping[str, Any],
    operations: Sequence[Mapping[str, Any]],
    said: str,
    *,
    dry_run: bool = False,
) -> str:
    """Apply JSON patch operations to an object if it has not changed since it was read. Return a one-line summary."""
    from app.kube.client import PatchType

    metadata = stored["metadata"]
    unchanged = {"op": "test", "path": "/metadata/resourceVersion", "value": metadata["resourceVersion"]}
    await client.patch(
        commands.kind.resource(),
        metadata["name"],
        [unchanged, *operations],
        scope(commands, metadata.get("namespace") or ""),
        kind=PatchType.JSON,
        dry_run=dry_run,
        field_manager="pykruise",
    )
    return f"{shown(commands, metadata['name'])} {said}{' (dry run)' if dry_run else ''}"


def _restartable() -> str:
    return ", ".join(one.kind.singular for one in known() if one.restart is not None)


async def restarted(client: Client, namespace: str, what: Sequence[str]) -> str:
    """Restart a workload. Return a one-line summary."""
    commands, name = wanted(what)
    if commands.restart is None:
        raise CommandError(f"{commands.kind.kind} {name}: cannot be restarted; these can: {_restartable()}")
    done = await commands.restart(client, await read(client, commands, namespace, name))
    return f"{shown(commands, name)} {done}"


async def set_paused(client: Client, namespace: str, what: Sequence[str], *, paused: bool) -> str:
    """Pause or resume a rollout. Return a one-line summary. Raises CommandError."""
    commands, name = wanted(what)
    called = f"{commands.kind.kind} {name}"
    if not commands.pausable:
        raise CommandError(f"{called}: has no rollout to pause or resume")
    stored = await read(client, commands, namespace, name)
    spec: Mapping[str, Any] = stored["spec"]
    strategy = spec.get("updateStrategy") or {}
    if strategy.get("type") == commands.without_rollout:
        raise CommandError(f"{called}: with {commands.without_rollout}, there is no rollout to pause or resume")
    where = commands.paused_of(stored)
    found: Mapping[str, Any] = {"spec": spec}
    for key in where:
        found = found.get(key) or {}
    if bool(found.get("paused")) == paused:
        return f"{shown(commands, name)} {'is already paused' if paused else 'is not paused'}"
    patch = _pause_patch(stored, where, paused=paused)
    await client.patch(commands.kind.resource(), name, patch, scope(commands, namespace), field_manager="pykruise")
    return f"{shown(commands, name)} {'paused' if paused else 'resumed'}"


def _pause_patch(stored: Mapping[str, Any], where: Sequence[str], *, paused: bool) -> dict[str, Any]:
    """Return the patch. Resuming removes everything that pausing added, because leftovers in a template would create a
    new revision."""
    parents: list[Any] = []
    found: Any = stored
    for key in where:
        found = found.get(key) if isinstance(found, dict) else None
        parents.append(found)
    patch: dict[str, Any] = {"paused": paused}
    if "template" not in where:
        for key in reversed(where):
            patch = {key: patch}
        return patch
    inner: dict[str, Any] | None = {"paused": True if paused else None}
    for key, parent in zip(reversed(where), reversed(parents), strict=True):
        added = not paused and key == "rollingUpdate" and parent == {"paused": True}
        inner = {key: None if added else inner}
    return inner or {}


# ---- images


def images_of(words: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Split ``KIND NAME CONTAINER=IMAGE …`` into the object and the images. Raises WrongCommandError."""
    from app.kube.images import parse_image

    what = [word for word in words if "=" not in word]
    pairs = [word.partition("=") for word in words if "=" in word]
    images = {container: image for container, _, image in pairs}
    if not images or any(not container or not image for container, _, image in pairs):
        raise WrongCommandError(f"{' '.join(words)}: expected KIND NAME CONTAINER=IMAGE, where * means every container")
    if not what:
        raise WrongCommandError(f"{' '.join(words)}: specify the object: KIND NAME CONTAINER=IMAGE, or KIND/NAME")
    if unusable := [image for image in images.values() if parse_image(image) is None]:
        raise WrongCommandError(f"{unusable[0]}: is not a valid image reference such as nginx:1.27")
    if len(images) < len(pairs):
        raise WrongCommandError(f"{' '.join(words)}: a container is named twice")
    return what, images


async def images_set(client: Client, namespace: str, words: Sequence[str], *, dry_run: bool = False) -> str:
    """Set the images of containers. Return a one-line summary. Raises CommandError."""
    what, images = images_of(words)
    commands, name = wanted(what)
    stored = await read(client, commands, namespace, name)
    called = f"{commands.kind.kind} {name}"
    containers = list(_containers(commands, stored))
    if not containers:
        raise CommandError(f"{called}: has no containers whose images can be set")
    known = [container.get("name") for _, container in containers]
    missing = [container for container in images if container != "*" and container not in known]
    if missing:
        raise CommandError(f"{called}: has no container {', '.join(missing)}; it has {', '.join(map(str, known))}")
    operations: list[Mapping[str, Any]] = []
    for path, container in containers:
        image = images.get(str(container.get("name")), images.get("*"))
        if image is not None and container.get("image") != image:
            operations.append({"op": "add", "path": f"{path}/image", "value": image})
    if not operations:
        return f"{shown(commands, name)} already has these images"
    return await changed(client, commands, stored, operations, "image updated", dry_run=dry_run)


def _containers(commands: Commands, stored: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Return the containers of an object with their JSON pointers."""
    for keys in commands.containers_at:
        found: Any = stored
        for key in keys:
            found = found.get(key) if isinstance(found, dict) else None
        for number, container in enumerate(found or ()):
            yield f"/{'/'.join(keys)}/{number}", container


# ---- scale-in


async def scaled_in(
    client: Client, namespace: str, what: Sequence[str], pods: Sequence[str], *, dry_run: bool = False
) -> str:
    """Delete exactly these Pods and lower the replicas. Return a one-line summary. Raises CommandError."""
    commands, name = wanted(what)
    called = f"{commands.kind.kind} {name}"
    if commands.scale_in is None:
        raise CommandError(f"{called}: {commands.no_scale_in}")
    asked = [pod for word in pods for pod in word.split(",") if pod]
    if not asked:
        raise WrongCommandError("--pods: expected comma-separated Pod names")
    if len(set(asked)) < len(asked):
        raise WrongCommandError("--pods: a Pod is named twice")
    stored = await read(client, commands, namespace, name)
    there = sorted(pod.metadata.name for pod in (await owned(client, stored)).pods)
    if missing := [pod for pod in asked if pod not in there]:
        raise CommandError(f"{called}: has no Pod {', '.join(missing)}; it has {first_of(there, _NAMED) or 'none'}")
    operations = commands.scale_in(stored, asked)
    replicas = next((one["value"] for one in operations if one["path"] == "/spec/replicas"), None)
    said = f"scaled in to {replicas} replicas: {', '.join(asked)} will be deleted"
    return await changed(client, commands, stored, operations, said, dry_run=dry_run)
