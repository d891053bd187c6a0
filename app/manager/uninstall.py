"""``pykruise prepare-uninstall``, a hook of the chart, cleans up before the manager's objects are deleted.

A running manager would restore its webhook configurations, so it is stopped first. Without a manager, the
configurations would reject every new Pod, so they are deleted next. Last, a finalizer of unfinished jobs is removed:
only a manager would remove it, and it would block the deletion of their CRD. While any of our workloads exists, the
uninstall is refused, because its Pods would be deleted with it. [MGR-86]
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Any, Final

from app.admission.configurations import CONFIGURATIONS
from app.api import names
from app.api.kind import KindDefinition
from app.features.ephemeraljob.kind import EPHEMERAL_JOB
from app.features.imagepull.kind import IMAGE_PULL_JOB
from app.kube.admission import PolicyRule
from app.kube.client import Client
from app.kube.concurrency import together
from app.kube.errors import KubeError, NotFound, sentence
from app.kube.objects import ObjectMeta, decode_metadata
from app.kube.resources import (
    DEPLOYMENTS,
    LEASES,
    PODS,
    Resource,
)

logger = logging.getLogger(__name__)

DEPLOYMENT: Final = "kruise-controller-manager"
#: Exists only if reviews and controllers have separate Deployments.
CONTROLLERS: Final = "kruise-controllers"
#: Label selector of the Deployments' Pods.
MANAGER_PODS: Final = "control-plane in (controller-manager,controllers)"
LEASE: Final = "kruise-manager"
#: Seconds allowed for the manager to stop.
STOP_SECONDS: Final = 120.0
_POLL_SECONDS: Final = 0.5
_NAMED_AT_MOST: Final = 5

#: Kinds whose deletion waits for a manager, and their finalizer.
_FINALIZERS: Final = (
    (IMAGE_PULL_JOB, names.DELETION_PROTECTION),
    (EPHEMERAL_JOB, names.EPHEMERAL_JOB_CLEANUP),
)
#: Maximum number of concurrent writes.
_AT_ONCE: Final = 8


class UninstallRefusedError(Exception):
    """An object is still in use, or a Pod of the manager did not stop. The message names it and the fix."""


def permissions(workloads: Iterable[KindDefinition]) -> tuple[PolicyRule, ...]:
    """Return the permissions of ``prepare_uninstall``, which refuses while objects of these kinds exist. [MGR-86]"""
    by_group: dict[str, list[str]] = {}
    for kind in workloads:
        by_group.setdefault(kind.group, []).append(kind.plural)
    listing = (PolicyRule(("list",), (group,), tuple(plurals)) for group, plurals in by_group.items())
    held = tuple(PolicyRule(("list", "patch"), (kind.group,), (kind.plural,)) for kind, _ in _FINALIZERS)
    return (
        *listing,
        *held,
        PolicyRule(
            ("delete",),
            ("admissionregistration.k8s.io",),
            tuple(resource.plural for resource, _ in CONFIGURATIONS),
            names=tuple(name for _, name in CONFIGURATIONS),
        ),
        PolicyRule(("patch",), ("apps",), ("deployments/scale",), names=(DEPLOYMENT, CONTROLLERS), own_namespace=True),
        PolicyRule(("list",), ("",), ("pods",), own_namespace=True),
        PolicyRule(("delete",), (LEASES.group,), (LEASES.plural,), names=(LEASE,), own_namespace=True),
    )


async def prepare_uninstall(client: Client, namespace: str, workloads: Sequence[KindDefinition]) -> None:
    """Refuse if objects of these kinds exist; otherwise stop the manager in ``namespace`` and delete what would outlive
    it.

    Raises UninstallRefusedError, or KubeError if the API server rejects a request.
    """
    if in_use := await _in_use(client, workloads):
        raise UninstallRefusedError(in_use)
    await _stop(client, namespace)
    for resource, name in CONFIGURATIONS:
        await _delete(client, resource, name)
    await _delete(client, LEASES, LEASE, namespace)
    for kind, finalizer in _FINALIZERS:
        await _let_go(client, kind, finalizer)


async def _in_use(client: Client, kinds: Sequence[KindDefinition]) -> str:
    found: list[str] = []
    more = False
    for kind in kinds:
        try:
            page = await client.list_page(kind.resource(), limit=_NAMED_AT_MOST + 1, metadata_only=True)
        except NotFound:  # the kind is not installed
            continue
        found += [f"{kind.kind} {_name_of(item)}" for item in page.items[:_NAMED_AT_MOST]]
        more = more or len(page.items) > _NAMED_AT_MOST
    if not found:
        return ""
    named = ", ".join(found) + (" and more" if more else "")
    return f"uninstall refused: {named} would be deleted with all their Pods; delete them first"


async def _stop(client: Client, namespace: str) -> None:
    for name in (CONTROLLERS, DEPLOYMENT):
        try:
            await client.patch(DEPLOYMENTS, name, {"spec": {"replicas": 0}}, namespace, subresource="scale")
        except NotFound:
            logger.info("Deployment %s/%s does not exist", namespace, name)
    deadline = client.clock.monotonic() + STOP_SECONDS
    while left := (await client.list(PODS, namespace, label_selector=MANAGER_PODS)).items:
        if client.clock.monotonic() > deadline:
            pods = ", ".join(_name_of(pod) for pod in left)
            raise UninstallRefusedError(
                f"Pods {pods}: still there after {STOP_SECONDS:g} s; delete them, then try again"
            )
        await client.clock.sleep(_POLL_SECONDS)
    logger.info("the manager has stopped")


async def _let_go(client: Client, kind: KindDefinition, finalizer: str) -> None:
    """Remove the finalizer from all objects of the kind, since the manager is gone. If one write fails, the others
    continue."""
    resource = kind.resource()

    async def let_go(metadata: ObjectMeta) -> None:
        others = [one for one in metadata.finalizers if one != finalizer]
        known = {"uid": metadata.uid, "resourceVersion": metadata.resource_version}
        body = {"metadata": {**known, "finalizers": others or None}}
        try:
            await client.patch(resource, metadata.name, body, metadata.namespace, decode=decode_metadata)
        except NotFound:
            pass
        except KubeError as error:
            logger.warning("cannot remove finalizer %s from an %s: %s", finalizer, kind.kind, sentence(error))

    try:
        found = (await client.list(resource, decode=decode_metadata)).items
    except NotFound:  # the kind is not installed
        return
    except KubeError as error:
        logger.warning("cannot remove finalizer %s from %ss: %s", finalizer, kind.kind, sentence(error))
        return
    held = [one.metadata for one in found if finalizer in one.metadata.finalizers]
    await together((let_go(one) for one in held), _AT_ONCE)
    if held:
        logger.info("removed finalizer %s from %d %ss", finalizer, len(held), kind.kind)


async def _delete(client: Client, resource: Resource, name: str, namespace: str = "") -> None:
    try:
        await client.delete(resource, name, namespace)
    except NotFound:
        return
    logger.info("%s %s deleted", resource.kind, name)


def _name_of(item: Any) -> str:
    metadata = item["metadata"]
    return "/".join(filter(None, (metadata.get("namespace"), metadata["name"])))
