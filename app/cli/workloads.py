"""Workloads of any kind that has commands: which one is meant, and what belongs to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.kube.client import Client
from app.kube.errors import NotFound
from app.kube.objects import Pod, decode_controller_revision, decode_pod
from app.kube.resources import CONTROLLERREVISIONS, PODS
from app.kube.selectors import to_query
from app.manager.slices import slices
from app.pods.revisions import Revision, in_order, of_owner, revision_of
from app.slices.commands import CommandError, Commands


def known() -> Sequence[Commands]:
    """The commands of all kinds that have some."""
    return tuple(found for one in slices() for found in one.commands())


def commands_for(api_version: object, kind: object) -> Commands | None:
    """The commands of the kind that a manifest or an owner reference names."""
    group = str(api_version).rpartition("/")[0]
    return next((one for one in known() if (one.kind.group, one.kind.kind) == (group, kind)), None)


def wanted(words: Sequence[str]) -> tuple[Commands, str]:
    """The kind and name that ``cloneset NAME``, ``cloneset/NAME`` or ``clone/NAME`` mean. Raises CommandError."""
    parts = [part for word in words for part in word.split("/")]
    there_are = ", ".join(one.kind.singular for one in known())
    if len(parts) != 2 or not parts[1]:
        raise CommandError(f"{' '.join(words)}: expected KIND NAME, where KIND is one of: {there_are}")
    for one in known():
        if parts[0].lower() in one.words:
            return one, parts[1]
    raise CommandError(f"{' '.join(words)}: {parts[0]} is no kind this command knows; it knows {there_are}")


def scope(commands: Commands, namespace: str) -> str:
    """The namespace of an object of this kind; '' where it has none."""
    return namespace if commands.kind.namespaced else ""


async def read(client: Client, commands: Commands, namespace: str, name: str) -> dict[str, Any]:
    """The stored object. Raises CommandError where there is none."""
    try:
        found: dict[str, Any] = await client.get(commands.kind.resource(), name, scope(commands, namespace))
    except NotFound:
        if not commands.kind.namespaced:
            raise CommandError(f"{commands.kind.kind} {name}: not found") from None
        raise CommandError(
            f"{commands.kind.kind} {namespace}/{name}: not found; name another namespace with -n"
        ) from None
    return found


@dataclass(frozen=True, slots=True)
class Belongings:
    """Pods that one object controls, and its revisions, oldest first."""

    pods: Sequence[Pod]
    revisions: Sequence[Revision]


async def belongings(client: Client, stored: Mapping[str, Any]) -> Belongings:
    """Read them from the cluster."""
    namespace, uid = stored["metadata"]["namespace"], stored["metadata"]["uid"]
    query = to_query(stored["spec"].get("selector"))
    pods = await client.list(PODS, namespace, label_selector=query, decode=decode_pod)
    revisions = await client.list(
        CONTROLLERREVISIONS, namespace, label_selector=query, decode=decode_controller_revision
    )
    controlled = [
        pod for pod in pods.items if pod.metadata.controller is not None and pod.metadata.controller.uid == uid
    ]
    return Belongings(controlled, in_order(of_owner(map(revision_of, revisions.items), uid)))
