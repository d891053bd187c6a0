"""The Pod of a job on a node (BJ-1, BJ-13)."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Final

from app.api import names
from app.api.broadcastjob import BROADCAST_JOB, BroadcastJob
from app.pods.owners import controller_reference
from app.pods.templates import pod_of_template

OWNER: Final = BROADCAST_JOB.resource()
_LONGEST: Final = 57


def name_of(job: BroadcastJob, node: str) -> str:
    """One name per job and node, so that no node is served twice, whatever answers get lost."""
    digest = hashlib.sha256(f"{job.metadata.uid}/{node}".encode()).hexdigest()
    return f"{job.name[:_LONGEST]}-{digest[:8]}"


def new_pod(job: BroadcastJob, node: str, *, by_scheduler: bool) -> dict[str, Any]:
    """``by_scheduler``: the scheduler puts it there; else it is bound already."""
    metadata = job.metadata
    owner = controller_reference(OWNER.api_version, OWNER.kind, metadata.name, metadata.uid)
    body = pod_of_template(
        job.spec.template,
        name_of(job, node),
        metadata.namespace,
        owner,
        generate_name=f"{metadata.name}-",
        labels={names.BROADCAST_JOB_NAME: metadata.name, names.BROADCAST_JOB_CONTROLLER_UID: metadata.uid},
    )
    body["spec"] = pinned(body["spec"], node) if by_scheduler else {**body["spec"], "nodeName": node}
    return body


def pinned(spec: Mapping[str, Any], node: str) -> dict[str, Any]:
    """The spec of a Pod with a required node affinity to one node, in place of another."""
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    affinity = spec.get("affinity") or {}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    return {**spec, "affinity": {**affinity, "nodeAffinity": {**(affinity.get("nodeAffinity") or {}), **required}}}
