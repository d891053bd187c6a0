"""Decide whether to pre-pull images for in-place updates, and which ImagePullJobs to create. Pure.

The decision is made once per update revision and stored in a label on it (PM-162). Pre-pulling requires the
gates PreDownloadImageForInPlaceUpdate and KruiseDaemon and a cluster that serves ImagePullJobs. [PM-160 … PM-168,
CS-138, CS-139]
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from app.api import names
from app.kube.quantities import IntOrPercentError, scaled

FEW_REPLICAS: Final = 3
BACKOFF_LIMIT: Final = 1
TIMEOUT_SECONDS: Final = 300
TTL_SECONDS: Final = 600
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,10}", re.ASCII)


class Decision(StrEnum):
    """Whether to pre-download the images of an update revision."""

    #: Already decided, or no rollout is in progress.
    NOTHING = "nothing"
    #: Too few updated Pods are ready.
    WAIT = "wait"
    #: Not worthwhile: label the revision as ignored.
    IGNORE = "ignore"
    #: Create the jobs, then label the revision as created.
    CREATE = "create"
    #: The rollout is complete: delete the workload's jobs.
    CLEAN_UP = "clean up"


@dataclass(frozen=True, slots=True)
class Rollout:
    """Input to the decision: counts from the workload's plan; ``max_unavailable`` is rounded down."""

    current: str
    update: str
    #: Labels of the update revision.
    labels: Mapping[str, str]
    #: Whether the policy prefers or requires in-place updates.
    in_place_policy: bool
    #: Whether the change from the current to the update revision is possible in place.
    in_place_possible: bool
    replicas: int
    partition: int
    max_unavailable: int
    updated_ready: int
    min_updated_ready: int = 0


def decide(rollout: Rollout) -> Decision:
    """Return the decision, checking the rules in order. [PM-160 … PM-166]"""
    if rollout.current == rollout.update:
        return Decision.CLEAN_UP
    if names.PRE_DOWNLOAD_CREATED in rollout.labels or names.PRE_DOWNLOAD_IGNORED in rollout.labels:
        return Decision.NOTHING
    if rollout.updated_ready < rollout.min_updated_ready:
        return Decision.WAIT
    one_batch = rollout.partition == 0 and rollout.max_unavailable >= rollout.replicas
    if not rollout.in_place_policy or rollout.replicas <= FEW_REPLICAS or one_batch or not rollout.in_place_possible:
        return Decision.IGNORE
    return Decision.CREATE


def outcome_label(decision: Decision) -> dict[str, str]:
    """Return the label that records the decision on the update revision. [PM-162]"""
    labels = {Decision.CREATE: names.PRE_DOWNLOAD_CREATED, Decision.IGNORE: names.PRE_DOWNLOAD_IGNORED}
    return {labels[decision]: "true"} if decision in labels else {}


def min_updated_ready(value: int | str | None, replicas: int) -> int:
    """Return how many updated Pods must be ready before pre-pulling. A percentage of replicas is rounded up. [PM-161]

    Raises ``IntOrPercentError`` for any other value; the workload logs it and uses 0.
    """
    if value is None or value == "":
        return 0
    if isinstance(value, str) and _INTEGER.fullmatch(value):
        return int(value)
    return scaled(value, replicas, round_up=True)


def parallelism(value: int | str | None) -> int:
    """Return the number of nodes that pull at once; defaults to 1. Raises ``IntOrPercentError`` for text that is not an
    integer. [PM-167]"""
    if value is None or value == "":
        return 1
    if isinstance(value, str) and not _INTEGER.fullmatch(value):
        raise IntOrPercentError(f"{value!r} is not an integer")
    return int(value)


def changed_images(current: Mapping[str, Any], update: Mapping[str, Any]) -> dict[str, str]:
    """Return the images of new or changed containers in the update template. [PM-167]"""
    before = {container.get("name"): container.get("image") for container in _containers(current)}
    return {
        str(container["name"]): str(container["image"])
        for container in _containers(update)
        if container.get("name") and container.get("image") and before.get(container["name"]) != container["image"]
    }


def _containers(template: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the containers and native sidecars, whose images can change in place."""
    spec = template.get("spec") or {}
    lists = (spec.get("containers"), spec.get("initContainers"))
    containers, inits = ([item for item in one or () if isinstance(item, dict)] for one in lists)
    return [*containers, *(item for item in inits if item.get("restartPolicy") == "Always")]


@dataclass(frozen=True, slots=True)
class Puller:
    """Fields shared by all jobs of a workload. ``selector`` is in JSON form."""

    namespace: str
    owner: Mapping[str, Any]
    selector: Mapping[str, Any]
    template: Mapping[str, Any]
    revision: str
    revision_hash: str
    parallelism: int | str = 1
    timeout_seconds: int = TIMEOUT_SECONDS


def pull_job(puller: Puller, container: str, image: str) -> dict[str, Any]:
    """Return the ImagePullJob that pulls one container's image on nodes with Pods of other revisions. [PM-167]"""
    metadata = puller.template.get("metadata") or {}
    labels = {**(metadata.get("labels") or {}), names.CONTROLLER_HASH: puller.revision_hash}
    updated = {
        "key": names.CONTROLLER_REVISION_HASH,
        "operator": "NotIn",
        "values": [puller.revision, puller.revision_hash],
    }
    selector = {**puller.selector, "matchExpressions": [*(puller.selector.get("matchExpressions") or ()), updated]}
    secrets = (puller.template.get("spec") or {}).get("imagePullSecrets") or ()
    spec: dict[str, Any] = {
        "image": image,
        "podSelector": selector,
        "parallelism": puller.parallelism,
        "pullPolicy": {"backoffLimit": BACKOFF_LIMIT, "timeoutSeconds": puller.timeout_seconds},
        "completionPolicy": {"type": "Always", "ttlSecondsAfterFinished": TTL_SECONDS},
        "sandboxConfig": {"labels": labels, "annotations": dict(metadata.get("annotations") or {})},
    }
    pull_secrets = [secret["name"] for secret in secrets if secret.get("name")]
    if pull_secrets:
        spec["pullSecrets"] = pull_secrets
    return {
        "apiVersion": f"{names.APPS_GROUP}/{names.V1BETA1}",
        "kind": "ImagePullJob",
        "metadata": {
            "name": f"{puller.revision}-{container}",
            "namespace": puller.namespace,
            "labels": labels,
            "ownerReferences": [puller.owner],
        },
        "spec": spec,
    }
