"""Reads the reviews or manifests of ``pykruise review`` and decides them without a manager."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import orjson

from app.admission.review import Refusal, read_review
from app.api.kind import find_kind
from app.kube.admission import (
    Decision,
    Denied,
    GroupVersionKind,
    GroupVersionResource,
    Operation,
    Patched,
    PatchOperation,
    Review,
)
from app.kube.client import Client
from app.kube.clock import SystemClock
from app.kube.resources import NAMESPACES
from app.manager.features import features
from app.manager.gates import FeatureGates
from app.manager.manifests import Manifest, manifest_files, parse_manifests, read_manifests
from app.manager.standalone import Standalone


class ReviewError(Exception):
    """Nothing can be reviewed: the file or the policies are invalid. Each argument is one reason."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The decisions about one review."""

    review: Review
    decisions: Sequence[tuple[str, Decision]]

    @property
    def refusal(self) -> Denied | None:
        """The first decision that denies the request."""
        return next((decision for _, decision in self.decisions if isinstance(decision, Denied)), None)

    @property
    def operations(self) -> tuple[PatchOperation, ...]:
        """All changes in order."""
        return tuple(
            operation
            for _, decision in self.decisions
            if isinstance(decision, Patched)
            for operation in decision.operations
        )


def review_file(path: str, policies: Path | None, namespace: str, gates: FeatureGates) -> list[Verdict]:
    """Review everything in a file (``-`` is standard input). Raises ReviewError or ManifestError."""
    return asyncio.run(_review(path, policies, namespace, gates))


async def _review(path: str, policies: Path | None, namespace: str, gates: FeatureGates) -> list[Verdict]:
    standalone = Standalone(policies, gates, SystemClock(), Random())
    await standalone.load()
    if standalone.problems:
        raise ReviewError(*standalone.problems)
    verdicts = []
    reviews = read_reviews(path, namespace)
    many = len(reviews) > 1
    for review in reviews:
        decided, _ = await standalone.decide(review)
        if not decided and not many and not _known(standalone, review):
            raise ReviewError(f"{path}: no webhook handles {review.operation} of {review.kind.kind}")
        if not decided and many:
            continue  # an object without handlers, such as a Deployment next to its Pod, is skipped
        verdicts.append(Verdict(review, [(handler.webhook.name, decision) for handler, decision in decided]))
    return verdicts


async def kept(client: Client, folder: Path) -> Path:
    """Save the cluster's Namespaces and the objects that affect Pods to a file in the folder."""
    found = []
    judging = [kind.resource() for one in features() for kind in one.judging_pods]
    for resource in (NAMESPACES, *judging):
        for obj in (await client.list(resource)).items:
            metadata = {key: obj["metadata"].get(key) or {} for key in ("labels", "annotations")}
            metadata["name"] = obj["metadata"]["name"]
            about = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata}
            found.append(about | {"spec": obj["spec"]} if resource is not NAMESPACES else about)
    file = folder / "cluster.json"
    file.write_bytes(b"\n---\n".join(map(orjson.dumps, found)))
    return file


def _known(standalone: Standalone, review: Review) -> bool:
    resource = (review.resource.group, review.resource.version, review.resource.resource)
    return any(resource in route.known_resources for route in standalone.registry.routes.values())


def read_reviews(path: str, namespace: str) -> list[Review]:
    """Return the reviews in a file or directory: AdmissionReviews, or manifests, which are reviewed as creations.

    A workload is followed by a Pod from its template.
    """
    manifests = _manifests(path)
    if not manifests:
        raise ReviewError(f"{'standard input' if path == '-' else path}: contains no objects")
    reviews = []
    for manifest in manifests:
        reviews.append(_as_review(manifest.object, manifest.at(), namespace))
        if manifest.object.get("kind") != "AdmissionReview" and (pod := _pod_of(reviews[-1])) is not None:
            reviews.append(pod)
    return reviews


def _manifests(path: str) -> Sequence[Manifest]:
    if path == "-":
        return parse_manifests(sys.stdin.read(), "standard input")
    if not Path(path).is_dir():
        return read_manifests(Path(path))
    return [manifest for file in manifest_files(Path(path)) for manifest in read_manifests(file)]


def _pod_of(workload: Review) -> Review | None:
    """Return a review of creating a Pod from a workload's template, or None if it has no template."""
    manifest = workload.object or {}
    template: Any = manifest
    for key in ("spec", "template"):
        template = template.get(key) if isinstance(template, Mapping) else None
    spec = template.get("spec") if isinstance(template, Mapping) else None
    if not isinstance(spec, Mapping) or not spec.get("containers") or not workload.namespace:
        return None
    metadata = template.get("metadata")
    given = dict(metadata) if isinstance(metadata, Mapping) else {}
    owner = {"apiVersion": manifest["apiVersion"], "kind": workload.kind.kind, "name": workload.name}
    owner |= {"uid": "offline", "controller": True}
    given |= {"generateName": f"{workload.name}-", "namespace": workload.namespace, "ownerReferences": [owner]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": given, "spec": dict(spec)}
    return Review(
        uid="offline",
        operation=Operation.CREATE,
        kind=GroupVersionKind("", "v1", "Pod"),
        resource=GroupVersionResource("", "v1", "pods"),
        name="",
        namespace=workload.namespace,
        dry_run=True,
        object=pod,
    )


def _as_review(document: dict[str, Any], where: str, namespace: str) -> Review:
    if document.get("kind") == "AdmissionReview":
        found = read_review(orjson.dumps(document))
        if isinstance(found, Refusal):
            raise ReviewError(f"{where}: {found.message}")
        return found
    api_version, kind = document.get("apiVersion"), document.get("kind")
    if not isinstance(api_version, str) or not isinstance(kind, str) or not api_version or not kind:
        raise ReviewError(f"{where}: apiVersion and kind: are required")
    group, _, version = api_version.rpartition("/")
    metadata = document.get("metadata")
    fields = metadata if isinstance(metadata, dict) else {}
    known = find_kind(api_version, kind)
    namespaced = known is None or known.namespaced
    # The API server sets the namespace before admission.
    given = str(fields.get("namespace") or "")
    if namespaced and not given:
        document = {**document, "metadata": {**fields, "namespace": namespace}}
    return Review(
        uid="offline",
        operation=Operation.CREATE,
        kind=GroupVersionKind(group, version, kind),
        resource=GroupVersionResource(group, version, known.plural if known is not None else f"{kind.lower()}s"),
        name=str(fields.get("name") or ""),
        namespace=(given or namespace) if namespaced else "",
        dry_run=True,
        object=document,
    )
