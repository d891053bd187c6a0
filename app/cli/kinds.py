"""Finds the commands of a kind by its name, without importing other kinds."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from app.framework.commands import Commands
from app.kube.errors import CommandError, NotFound, WrongCommandError
from app.manager.features import FOLDERS

if TYPE_CHECKING:
    from app.framework.verbs import Verb
    from app.kube.client import Client
    from app.workloads.commands import OwnedObjects


_FILE: Final = Path(__file__).resolve().parent.parent / "manager" / "commands.json"


@cache
def _index() -> Mapping[str, Any]:
    found: Mapping[str, Any] = json.loads(_FILE.read_text("utf-8"))
    if found["folders"] == FOLDERS:
        return found
    # A feature was added, but the index has not been regenerated yet.
    from app.manager.generated_indexes import gathered_commands

    return gathered_commands()


def kinds() -> Sequence[Mapping[str, Any]]:
    """Return the kinds with commands: their names and the modules of the commands."""
    found: Sequence[Mapping[str, Any]] = _index()["kinds"]
    return found


def verbs() -> Mapping[str, Mapping[str, str]]:
    """Return verbs by name with their modules and help texts."""
    found: Mapping[str, Mapping[str, str]] = _index()["verbs"]
    return found


def verb_called(name: str) -> Verb:
    """Return an existing verb by name."""
    found: Any = _at(verbs()[name]["at"])
    if hasattr(found, "verbs"):
        found = next(one for one in found.verbs() if one.name == name)
    made: Verb = found
    return made


def commands_of(entry: Mapping[str, Any]) -> Commands:
    """Return the commands of an entry of ``kinds()``."""
    found: Any = _at(entry["at"])
    if hasattr(found, "verbs"):
        found = next(one for one in found.commands() if one.kind.kind == entry["kind"])
    made: Commands = found
    return made


def _first(meant: Callable[[Mapping[str, Any]], bool]) -> Commands | None:
    return next((commands_of(one) for one in kinds() if meant(one)), None)


def _at(place: str) -> Any:
    """Import ``module:NAME``: commands, a verb, or a feature that defines them."""
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)


def known() -> Sequence[Commands]:
    """Return the commands of all kinds."""
    return tuple(map(commands_of, kinds()))


def commands_for(api_version: object, kind: object) -> Commands | None:
    """Return the commands of the kind in a manifest or an owner reference."""
    group = str(api_version).rpartition("/")[0]
    return _first(lambda one: (one["group"], one["kind"]) == (group, str(kind)))


#: Names of built-in kinds and of the kinds of Kruise Rollouts. Errors about them contain a hint.
_BUILT_IN: Final = re.compile(
    r"(deployments?|deploy|replicasets?|rs|jobs?|cronjobs?|cj)(\.apps|\.batch)?|(statefulset|daemonset)s?\.apps"
)
_ROLLOUTS: Final = ("rollout", "rollouts", "ro", "batchrelease", "batchreleases", "trafficrouting", "trafficroutings")


def parts_of(words: Sequence[str]) -> tuple[str, str]:
    """Return the lower-case kind and the name in ``KIND NAME`` or ``KIND/NAME``; the name may be empty. Raises
    WrongCommandError."""
    parts = [part for word in words for part in word.split("/")]
    if not parts or len(parts) > 2 or not parts[0] or (len(parts) == 2 and not parts[1]):
        raise WrongCommandError(f"{' '.join(words)}: expected KIND NAME or KIND/NAME")
    return parts[0].lower(), parts[1] if len(parts) == 2 else ""


def wanted(words: Sequence[str]) -> tuple[Commands, str]:
    """Return the kind and name in ``cloneset NAME``, ``cloneset/NAME`` or ``clone/NAME``. Raises CommandError."""
    word, name = parts_of(words)
    found = kind_of(word)
    if not name:
        raise WrongCommandError(f"{' '.join(words)}: specify the name of a {found.kind.kind}: KIND NAME or KIND/NAME")
    return found, name


def kind_of(word: str) -> Commands:
    """Return the commands of a kind by any of its names. Raises WrongCommandError with a hint."""
    if found := _first(lambda one: word in one["words"]):
        return found
    raise WrongCommandError(f"{word} {_instead(word)}")


def _instead(word: str) -> str:
    if _BUILT_IN.fullmatch(word):
        return "is built into Kubernetes; use kubectl rollout, kubectl set image or kubectl describe"
    if word in _ROLLOUTS:
        return "belongs to Kruise Rollouts, another project; specify its workload: pykruise rollout status KIND NAME"
    from app.manager.features import kinds as known_kinds

    for kind in known_kinds():
        if word in (kind.kind.lower(), kind.singular, kind.plural, *kind.short_names, kind.crd_name):
            what = f"kubectl describe {kind.singular}.{kind.group} NAME"
            return f"has no rollout and no commands of its own; use {what}"
    return f"is not a supported kind; use one of: {', '.join(one['singular'] for one in kinds())}"


def scope(commands: Commands, namespace: str) -> str:
    """Return the namespace of an object of this kind, or '' if the kind is cluster-scoped."""
    return namespace if commands.kind.namespaced else ""


async def read(client: Client, commands: Commands, namespace: str, name: str) -> dict[str, Any]:
    """Return the stored object. Raises CommandError if it does not exist."""
    try:
        found: dict[str, Any] = await client.get(commands.kind.resource(), name, scope(commands, namespace))
    except NotFound:
        if not commands.kind.namespaced:
            raise CommandError(f"{commands.kind.kind} {name}: not found") from None
        raise CommandError(
            f"{commands.kind.kind} {namespace}/{name}: not found; use -n to specify another namespace"
        ) from None
    return found


async def owned(client: Client, stored: Mapping[str, Any]) -> OwnedObjects:
    """Return the Pods and revisions that a stored object controls."""
    from app.pods.predicates import Owner
    from app.workloads.commands import owned_objects

    metadata = stored["metadata"]
    owner = Owner(stored["apiVersion"], stored["kind"], metadata["name"], metadata["namespace"], metadata["uid"])
    return await owned_objects(client, owner, stored["spec"].get("selector"))
