"""Workloads of any kind that has commands: which one is meant, and what belongs to it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from app.cli import index
from app.kube.errors import NotFound
from app.slices.commands import CommandError, Commands, WrongCommandError

if TYPE_CHECKING:
    from app.kube.client import Client
    from app.pods.owned import OwnedObjects


def known() -> Sequence[Commands]:
    """The commands of all kinds that have some."""
    return tuple(map(index.commands_of, index.kinds()))


def commands_for(api_version: object, kind: object) -> Commands | None:
    """The commands of the kind that a manifest or an owner reference names."""
    return index.commands_for(str(api_version).rpartition("/")[0], str(kind))


#: Kinds that people name and that are not ours, with what to type instead.
_BUILT_IN: Final = re.compile(
    r"(deployments?|deploy|replicasets?|rs|jobs?|cronjobs?|cj)(\.apps|\.batch)?|(statefulset|daemonset)s?\.apps"
)
_ROLLOUTS: Final = ("rollout", "rollouts", "ro", "batchrelease", "batchreleases", "trafficrouting")


def parts_of(words: Sequence[str]) -> tuple[str, str]:
    """Kind and name in ``KIND NAME`` or ``KIND/NAME``, the kind in small letters; the name may be missing. Raises
    WrongCommandError."""
    parts = [part for word in words for part in word.split("/")]
    if not parts or len(parts) > 2 or not parts[0] or (len(parts) == 2 and not parts[1]):
        raise WrongCommandError(f"{' '.join(words)}: expected KIND NAME, or KIND/NAME")
    return parts[0].lower(), parts[1] if len(parts) == 2 else ""


def wanted(words: Sequence[str]) -> tuple[Commands, str]:
    """The kind and name that ``cloneset NAME``, ``cloneset/NAME`` or ``clone/NAME`` mean. Raises CommandError."""
    word, name = parts_of(words)
    found = kind_of(word)
    if not name:
        raise WrongCommandError(f"{' '.join(words)}: which {found.kind.kind}? Expected KIND NAME, or KIND/NAME")
    return found, name


def kind_of(word: str) -> Commands:
    """The commands of the kind that a person calls so. Raises WrongCommandError with what there is instead."""
    if found := index.commands_called(word):
        return found
    raise WrongCommandError(f"{word} {_instead(word)}")


def _instead(word: str) -> str:
    if _BUILT_IN.fullmatch(word):
        return "is built into Kubernetes; kubectl looks after it: kubectl rollout, kubectl set image, kubectl describe"
    if word in _ROLLOUTS:
        return "is a kind of Kruise Rollouts, another project; ask for its workload: pykruise rollout status KIND NAME"
    from app.manager.slices import kinds

    for kind in kinds():
        if word in (kind.kind.lower(), kind.singular, kind.plural, *kind.short_names, kind.crd_name):
            what = f"kubectl describe {kind.singular}.{kind.group} NAME"
            return f"has no roll-out and no commands of its own; look at it with {what}"
    return f"is not a kind that pykruise knows; it knows {', '.join(one['singular'] for one in index.kinds())}"


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


async def owned(client: Client, stored: Mapping[str, Any]) -> OwnedObjects:
    """The Pods that a stored object controls, and its revisions."""
    from app.pods.owned import owned_objects
    from app.pods.owners import Owner

    metadata = stored["metadata"]
    owner = Owner(stored["apiVersion"], stored["kind"], metadata["name"], metadata["namespace"], metadata["uid"])
    return await owned_objects(client, owner, stored["spec"].get("selector"))
