"""Actions of users on CloneSets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app.features.cloneset.kind import CLONE_SET
from app.kube.client import PatchType
from tests.simulation.script import NAMESPACE
from tests.simulation.users import UserAction, Users
from tests.simulation.workloads.cloneset.manifests import CLONE_SETS, clone_set
from tests.simulation.workloads.subject import create

Json = dict[str, Any]


async def _create_cloneset(users: Users, name: str, **spec: Any) -> None:
    await create(users, CLONE_SET, name, clone_set(name, **spec))


async def _scale_cloneset(users: Users, name: str, replicas: int) -> None:
    await users.admin.patch(CLONE_SETS, name, {"spec": {"replicas": replicas}}, NAMESPACE)


async def _roll_cloneset(
    users: Users, name: str, image: str, partition: int | None = None, marked: int | None = None
) -> None:
    """Change the image, after marking some Pods for replacement (``marked``)."""
    if marked is not None:
        await users.mark_pods(name, marked)
    patch: list[Json] = [{"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": image}]
    if partition is not None:
        path = "/spec/updateStrategy/rollingUpdate/partition"
        patch.append({"op": "add", "path": path, "value": partition})
    await users.admin.patch(CLONE_SETS, name, patch, NAMESPACE, kind=PatchType.JSON)


async def _partition_cloneset(users: Users, name: str, partition: int) -> None:
    patch = {"spec": {"updateStrategy": {"rollingUpdate": {"partition": partition}}}}
    await users.admin.patch(CLONE_SETS, name, patch, NAMESPACE)


async def _delete_cloneset(users: Users, name: str) -> None:
    await users.admin.delete(CLONE_SETS, name, NAMESPACE)


USER_ACTIONS: Mapping[str, UserAction] = {
    "create cloneset": UserAction(_create_cloneset),
    "scale cloneset": UserAction(_scale_cloneset, 600.0),
    "roll cloneset": UserAction(_roll_cloneset, 600.0),
    "partition cloneset": UserAction(_partition_cloneset),
    "delete cloneset": UserAction(_delete_cloneset),
}
