"""Decides admission reviews offline, and shows each change with its rule as a diff: the work of ``pykruise review``."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import orjson
from rich.console import Console
from rich.text import Text

from app.admission.review import Refusal, answer, read_review
from app.api.kind import find_kind
from app.cli.patch_text import Line, changes
from app.kube.admission import (
    Allowed,
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
from app.kube.text import one_line, printable
from app.manager import generated_indexes
from app.manager.features import features
from app.manager.gates import FeatureGates
from app.manager.manifests import Manifest, manifest_files, parse_manifests, read_manifests
from app.manager.standalone import Standalone

_STYLES = {" ": "", "-": "red", "+": "green"}


class ReviewError(Exception):
    """The file contains nothing to review."""


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
    await standalone.reload()
    if standalone.problems:
        raise ReviewError("\n".join(standalone.problems))
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
    """Return a review of creating a Pod from a workload's template; None if it has no template."""
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


def show(verdict: Verdict, console: Console) -> None:
    """Print one verdict."""
    review = verdict.review
    title = f"{review.operation} {review.kind.kind} {review.namespace + '/' if review.namespace else ''}{_name(review)}"
    refusal = verdict.refusal
    outcome = "denied" if refusal else "changed" if verdict.operations else "allowed"
    style = {"denied": "bold red", "changed": "bold green", "allowed": "bold"}[outcome]
    console.print(Text.assemble((one_line(title), "bold"), ": ", (outcome, style)))
    for webhook, decision in verdict.decisions:
        console.print(Text(f"  {webhook}: {printable(_said(decision))}"), soft_wrap=True)
        warnings = decision.warnings if isinstance(decision, Allowed | Patched) else ()
        for warning in warnings:
            console.print(Text(f"  warning: {one_line(warning)}", style="yellow"), soft_wrap=True)
    if verdict.operations and refusal is None:
        _explain_rules(verdict, console)
        console.print()
        for line in changes(review.object, verdict.operations):
            console.print(_rendered(line), soft_wrap=True)


def _explain_rules(verdict: Verdict, console: Console) -> None:
    """Print the text of each rule behind a change."""
    sentences = {rule: text for of_path in generated_indexes.rules().values() for rule, text in of_path.items()}
    for rule in dict.fromkeys(operation.rule for operation in verdict.operations if operation.rule):
        parts = [f"{part}: {sentences[part]}" for part in rule.replace(",", " ").split() if part in sentences]
        for said in parts:
            console.print(Text(f"    {said}", style="dim"), soft_wrap=True)


def _rendered(line: Line) -> Text:
    text = Text(f"{line.sign} {printable(line.text)}", style=_STYLES[line.sign])
    if line.rule:
        text.append(f"   # {line.rule}", style="cyan")
    return text


def _said(decision: Decision) -> str:
    if isinstance(decision, Denied):
        # A message may quote characters that UTF-8 cannot encode.
        return f"denied ({decision.code}): {decision.message.encode('utf-8', 'replace').decode()}"
    if isinstance(decision, Patched):
        rules = dict.fromkeys(operation.rule for operation in decision.operations if operation.rule)
        return f"{len(decision.operations)} changes by {', '.join(rules)}"
    return "allowed"


def _name(review: Review) -> str:
    metadata = (review.object or {}).get("metadata")
    fields = metadata if isinstance(metadata, dict) else {}
    return review.name or str(fields.get("name") or fields.get("generateName") or "")


def as_json(verdict: Verdict) -> bytes:
    """Return the response to the API server as JSON."""
    decision: Decision = verdict.refusal or (Patched(verdict.operations) if verdict.operations else Allowed())
    return answer(verdict.review.uid, decision)
