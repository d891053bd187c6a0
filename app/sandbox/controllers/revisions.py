"""ControllerRevisions of StatefulSets and DaemonSets: what ``kubectl rollout history`` and ``undo`` read."""

from __future__ import annotations

import json
from collections.abc import Sequence
from random import Random
from typing import Any

from app.kube.client import Client
from app.kube.errors import AlreadyExists
from app.kube.objects import ObjectMeta, Struct, decoder
from app.kube.reflector import Reflector
from app.kube.resources import CONTROLLERREVISIONS, Resource
from app.kube.store import Store
from app.pods.hashes import fnv32a, safe_encode
from app.sandbox.controllers.objects import Template, Workload
from app.sandbox.controllers.pods import owner_reference

LABEL = "controller-revision-hash"


class Recorded(Struct, frozen=True):
    """A ControllerRevision."""

    metadata: ObjectMeta = ObjectMeta()
    revision: int = 0


class Revisions:
    """The revisions of all workloads of the native kinds."""

    def __init__(self, client: Client, rng: Random) -> None:
        self._client = client
        self.store: Store[Recorded] = Store(
            {"owner": lambda one: [one.metadata.controller.uid] if one.metadata.controller is not None else []}
        )
        self.reflector = Reflector(client, CONTROLLERREVISIONS, self.store, decode=decoder(Recorded), rng=rng)

    def of(self, workload: Workload) -> Sequence[Recorded]:
        """The workload's revisions, oldest first."""
        return sorted(self.store.by_index("owner", workload.metadata.uid), key=lambda one: one.revision)

    async def record(self, owner: Resource, workload: Workload) -> str:
        """Have the template recorded as the newest revision. Returns its hash, which Pods carry as a label."""
        digest = template_digest(workload.spec.template)
        known = self.of(workload)
        name = f"{workload.metadata.name}-{digest}"
        latest = max((one.revision for one in known), default=0)
        mine = next((one for one in known if one.metadata.name == name), None)
        if mine is None:
            template = {"metadata": workload.spec.template.metadata, "spec": workload.spec.template.spec}
            body: dict[str, Any] = {
                "metadata": {
                    "name": name,
                    "labels": {**workload.spec.template.labels, LABEL: digest},
                    "ownerReferences": [owner_reference(owner, workload.metadata)],
                },
                "revision": latest + 1,
                "data": {"spec": {"template": {"$patch": "replace", **template}}},
            }
            try:
                await self._client.create(CONTROLLERREVISIONS, body, workload.metadata.namespace)
            except AlreadyExists:
                return digest
        elif mine.revision < latest:
            body = {"metadata": {"uid": mine.metadata.uid}, "revision": latest + 1}
            await self._client.patch(CONTROLLERREVISIONS, name, body, workload.metadata.namespace)
        return digest


def template_digest(template: Template) -> str:
    """A template's hash."""
    return safe_encode(str(fnv32a(json.dumps([template.metadata, template.spec], sort_keys=True).encode())))
