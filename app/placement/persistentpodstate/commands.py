"""``pykruise explain persistentpodstate NAME``: where each Pod was and is, and where the next of its name goes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pydantic import ValidationError

from app.api.persistentpodstate import PERSISTENT_POD_STATE, PersistentPodState
from app.api.persistentpodstate.validation import group_of
from app.api.requested import unreadable
from app.kube.client import Client
from app.kube.objects import Pod, decode_node, decode_pod
from app.kube.resources import NODES, PODS
from app.placement.persistentpodstate.plan.explain import COLUMNS, rows
from app.slices.commands import CommandError, Commands, Report, Stored
from app.slices.options import Enabled


async def explain_object(client: Client, stored: Stored, _enabled: Enabled) -> Report:
    """A row for each Pod that is remembered or there. Raises CommandError or KubeError."""
    try:
        state = PersistentPodState.model_validate(dict(stored))
    except ValidationError as error:
        name = (stored.get("metadata") or {}).get("name")
        raise CommandError(f"PersistentPodState {name}: {unreadable(error)}") from None
    target = state.spec.target_ref
    listed = (await client.list(PODS, state.metadata.namespace, decode=decode_pod)).items
    pods = {
        pod.metadata.name: pod for pod in listed if _controlled_by(pod, (group_of(target), target.kind, target.name))
    }
    nodes: Mapping[str, Mapping[str, Any]] = {
        node.metadata.name: node.metadata.labels for node in (await client.list(NODES, decode=decode_node)).items
    }
    head = f"PersistentPodState {state.metadata.namespace}/{state.name}: Pods of {target.kind} {target.name}"
    found = rows(state, pods, nodes)
    return Report(head, COLUMNS, found, [] if found else ["no Pod of it was ready yet: nothing is remembered"])


def _controlled_by(pod: Pod, workload: tuple[str, str, str]) -> bool:
    owner = pod.metadata.controller
    return owner is not None and (owner.group, owner.kind, owner.name) == workload


COMMANDS: Final = Commands(PERSISTENT_POD_STATE, explain_object=explain_object, pausable=False, history=False)
