"""Plans a ResourceDistribution: its targets, copies and status. Pure."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from app.api import names
from app.api.gojson import dumps_go
from app.features.resourcedistribution.kind import RESOURCE_DISTRIBUTION
from app.features.resourcedistribution.types import (
    CONDITION_TYPES,
    CREATE_FAILED,
    DELETE_FAILED,
    GET_FAILED,
    NO_NAMESPACE,
    UPDATE_FAILED,
    DistributionTargets,
    NamespaceList,
)
from app.kube.jsonvalues import json_copy
from app.kube.objects import ObjectMeta
from app.kube.resources import CONFIGMAPS, SECRETS, Resource
from app.kube.selectors import Selector, compile_selector
from app.pods.predicates import Owner, controller_of, refers_to

# Target namespaces. [RD-20 … RD-23]

#: Namespaces that never receive a copy. [RD-21]
SYSTEM_NAMESPACES: Final = frozenset({"kube-system", "kube-public"})


@dataclass(frozen=True, slots=True)
class TargetRule:
    """The compiled targets of one ResourceDistribution."""

    all_namespaces: bool
    included: frozenset[str]
    excluded: frozenset[str]
    #: None and an empty selector select nothing.
    selector: Selector | None

    @classmethod
    def of(cls, targets: DistributionTargets) -> TargetRule:
        """Compile ``targets``. Raises SelectorError if the selector is invalid."""
        return cls(
            targets.all_namespaces,
            frozenset(listed_names(targets.included_namespaces)) - SYSTEM_NAMESPACES,
            frozenset(listed_names(targets.excluded_namespaces)) | SYSTEM_NAMESPACES,
            compile_selector(targets.namespace_selector) if targets.namespace_selector else None,
        )

    def matches(self, name: str, labels: Mapping[str, str]) -> bool:
        """Return whether an existing namespace is a target."""
        if name in self.excluded:
            return False
        return self.all_namespaces or name in self.included or self.selects(labels)

    def selects(self, labels: Mapping[str, str]) -> bool:
        return self.selector is not None and bool(self.selector.requirements) and self.selector.matches(labels)

    def namespaces(self, existing: Mapping[str, Mapping[str, str]]) -> list[str]:
        """Return the names of the targets. ``existing`` maps every namespace to its labels. Included namespaces that do
        not exist are also targets, unless all namespaces are selected. [RD-20, RD-22]"""
        found = {name for name, labels in existing.items() if self.matches(name, labels)}
        return sorted(found if self.all_namespaces else found | (self.included - self.excluded))


def existing_namespaces(namespaces: Iterable[ObjectMeta]) -> set[str]:
    """Return the names of the namespaces that can contain copies. Terminating namespaces cannot. [RD-33, RD-38]"""
    return {one.name for one in namespaces if one.deletion_timestamp is None}


def listed_names(given: NamespaceList | None) -> list[str]:
    """Return the names in a list of namespaces."""
    return [one.name for one in given.list_ or ()] if given is not None else []


# Content of a copy, its comparison with an existing object, and the update patch. [RD-34 … RD-37, RD-70, RD-71]

FIELD_MANAGER: Final = "kruise-resourcedistribution"
"""Field manager of the copies. It identifies the labels and annotations that we have set."""
_RESOURCES: Final[Mapping[tuple[str, str], Resource]] = {
    ("v1", "ConfigMap"): CONFIGMAPS,
    ("v1", "Secret"): SECRETS,
}
_OPAQUE: Final = "Opaque"
#: Metadata that the API server sets, or that would tie a copy to another object. [RD-74]
_NOT_COPIED: Final = (
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "selfLink",
    "managedFields",
    "ownerReferences",
    "namespace",
)


class TemplateError(ValueError):
    """The resource cannot be distributed. The message says why."""


@dataclass(frozen=True)
class Template:
    """The resource of one ResourceDistribution, normalized for writing and comparing copies."""

    owner: str
    owner_uid: str
    resource: Resource
    name: str
    #: The resource as given in the ResourceDistribution.
    manifest: Mapping[str, Any]

    @classmethod
    def of(cls, owner: str, owner_uid: str, manifest: Mapping[str, Any]) -> Template:
        """Parse a manifest. Raises TemplateError unless it is a ConfigMap or Secret with a name. [RD-31]"""
        kind = manifest.get("kind")
        resource = _RESOURCES.get((str(manifest.get("apiVersion")), str(kind)))
        if resource is None:
            raise TemplateError(f"spec.resource: a {kind} of {manifest.get('apiVersion')} cannot be distributed")
        metadata = manifest.get("metadata")
        name = metadata.get("name") if isinstance(metadata, dict) else None
        if not isinstance(name, str) or not name:
            raise TemplateError("spec.resource.metadata.name: is required")
        return cls(owner, owner_uid, resource, name, manifest)

    @cached_property
    def digest(self) -> str:
        """Return the SHA-256 of the resource as Go marshals it. [RD-36]"""
        return hashlib.sha256(dumps_go(self.manifest, sort_keys=True).encode()).hexdigest()

    @cached_property
    def content(self) -> Mapping[str, Any]:
        """Return everything but metadata and status, as an API server stores it. [RD-70]"""
        return normalized_content(self.manifest)

    @cached_property
    def labels(self) -> Mapping[str, str]:
        return _strings(self.manifest, "labels")

    @cached_property
    def annotations(self) -> Mapping[str, str]:
        return {
            **_strings(self.manifest, "annotations"),
            names.RESOURCE_DISTRIBUTION_SOURCE: self.owner,
            names.RESOURCE_DISTRIBUTION_HASH: self.digest,
        }

    @cached_property
    def finalizers(self) -> tuple[str, ...]:
        found = (self.manifest.get("metadata") or {}).get("finalizers")
        return tuple(one for one in found if isinstance(one, str)) if isinstance(found, list) else ()

    @property
    def controller(self) -> Owner:
        """Return the ResourceDistribution as the owner of its copies. [RD-36]"""
        resource = RESOURCE_DISTRIBUTION.resource()
        return Owner(resource.api_version, resource.kind, self.owner, "", self.owner_uid)

    def copy(self, namespace: str) -> dict[str, Any]:
        """Return the object to create in ``namespace``. [RD-36]"""
        given = self.manifest.get("metadata") or {}
        metadata = {key: json_copy(value) for key, value in given.items() if key not in _NOT_COPIED}
        metadata |= {"namespace": namespace, "annotations": dict(self.annotations)}
        metadata["ownerReferences"] = [self.controller.reference]
        content = {key: json_copy(value) for key, value in self.manifest.items() if key not in ("metadata", "status")}
        return {**content, "metadata": metadata}


def without_identity(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return a manifest without the metadata that an API server sets. [RD-74]"""
    metadata = manifest.get("metadata")
    if not isinstance(metadata, dict):
        return dict(manifest)
    return {**manifest, "metadata": {key: value for key, value in metadata.items() if key not in _NOT_COPIED}}


def normalized_content(obj: Mapping[str, Any]) -> dict[str, Any]:
    """Return an object without metadata, status and empty fields. Secrets get the default type and their ``stringData``
    merged into ``data``, as an API server stores them. [RD-35, RD-70]"""
    content = {
        key: value
        for key, value in obj.items()
        if key not in ("metadata", "status") and value is not None and value != {} and value is not False
    }
    if content.get("kind") != SECRETS.kind:
        return content
    content.setdefault("type", _OPAQUE)
    texts = content.pop("stringData", None)
    if isinstance(texts, dict):
        encoded = {key: base64.b64encode(str(text).encode()).decode() for key, text in texts.items()}
        content["data"] = {**(content.get("data") or {}), **encoded}
    return content


def is_copy_of(copy: Mapping[str, Any], template: Template) -> bool:
    """Return whether the template's ResourceDistribution manages the object. [RD-34]"""
    metadata = copy.get("metadata") or {}
    reference = controller_of(metadata.get("ownerReferences") or ())
    return refers_to(reference, str(metadata.get("namespace") or ""), template.controller)


def copies_to_delete(
    copies: Iterable[ObjectMeta], template: Template, targets: Collection[str], existing: Collection[str]
) -> list[ObjectMeta]:
    """Return the copies to delete: those in namespaces that are no longer targets, and those with a former name. Copies
    in terminating namespaces are deleted with the namespace. [RD-23, RD-38, RD-41]"""
    return [
        copy
        for copy in copies
        if copy.deletion_timestamp is None
        and copy.namespace in existing
        and (copy.namespace not in targets or copy.name != template.name)
    ]


def update_patch(template: Template, copy: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON merge patch that updates ``copy`` (as read; kind and apiVersion may be missing), or an empty one
    if it is up to date.

    Content is replaced. Labels and annotations added by others are kept; those from an earlier template are removed.
    [RD-37, RD-71]
    """
    present = normalized_content({"kind": template.resource.kind, "apiVersion": template.resource.api_version, **copy})
    patch = _replacement(present, template.content)
    metadata = _metadata_patch(template, copy.get("metadata") or {})
    if metadata:
        patch["metadata"] = metadata
    if patch and len((copy.get("metadata") or {}).get("ownerReferences") or ()) > 1:
        patch.setdefault("metadata", {})["ownerReferences"] = [template.controller.reference]
    return patch


def _metadata_patch(template: Template, metadata: Mapping[str, Any]) -> dict[str, Any]:
    ours = written_keys(metadata.get("managedFields"))
    patch: dict[str, Any] = {}
    for field, wanted in (("labels", template.labels), ("annotations", template.annotations)):
        present = metadata.get(field) or {}
        changes: dict[str, str | None] = {
            key: None for key in sorted(ours.get(field, frozenset())) if key in present and key not in wanted
        }
        changes |= {key: value for key, value in wanted.items() if present.get(key) != value}
        if changes:
            patch[field] = changes
    missing = [one for one in template.finalizers if one not in (metadata.get("finalizers") or ())]
    if missing:
        patch["finalizers"] = [*(metadata.get("finalizers") or ()), *missing]
    return patch


def written_keys(managed_fields: object) -> dict[str, frozenset[str]]:
    """Return the labels and annotations that we have set, by field, from the managed fields."""
    found: dict[str, frozenset[str]] = {}
    for entry in managed_fields if isinstance(managed_fields, list) else ():
        if entry.get("manager") != FIELD_MANAGER:
            continue
        metadata = (entry.get("fieldsV1") or {}).get("f:metadata") or {}
        for field in ("labels", "annotations"):
            keys: Iterable[str] = metadata.get(f"f:{field}") or ()
            found[field] = found.get(field, frozenset()) | {key[2:] for key in keys if key.startswith("f:")}
    return found


def _replacement(present: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Return the merge patch from one JSON object to another, including nested maps."""
    patch: dict[str, Any] = {key: None for key in present if key not in wanted}
    for key, value in wanted.items():
        old = present.get(key)
        if old == value:
            continue
        patch[key] = _replacement(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return patch


def _strings(manifest: Mapping[str, Any], field: str) -> dict[str, str]:
    found = (manifest.get("metadata") or {}).get(field)
    return {str(key): str(value) for key, value in found.items()} if isinstance(found, dict) else {}


# Status of a ResourceDistribution. [RD-50 … RD-53, RD-75]

SUCCEEDED: Final = "Succeeded"
NAMESPACE_MISSING: Final = "namespace not found or is terminating"
#: Failures that are retried. [RD-55]
RETRIED: Final = frozenset({GET_FAILED, CREATE_FAILED, UPDATE_FAILED, DELETE_FAILED})
#: Maximum length of a reason in the status. Longer API server messages are truncated.
LONGEST_REASON: Final = 1024


@dataclass(frozen=True, slots=True)
class Failure:
    """A failure in one namespace. ``condition`` is one of CONDITION_TYPES."""

    namespace: str
    condition: str
    reason: str


def missing_targets(targets: Iterable[str], existing: Collection[str]) -> list[Failure]:
    """Return a failure for each target that does not exist or is terminating. [RD-22, RD-33]"""
    return [Failure(name, NO_NAMESPACE, NAMESPACE_MISSING) for name in targets if name not in existing]


def conflict_reason(namespace: str, api_version: str, kind: str, name: str) -> str:
    """Return the message for an object of the same name that is not a copy. [RD-52]"""
    return f"{api_version}, Kind={kind} {namespace}/{name} already exists and is not controlled by this object"


def status_of(
    targets: Sequence[str],
    failures: Sequence[Failure],
    present: Mapping[str, Any],
    generation: int,
    now: str,
) -> dict[str, Any]:
    """Return the complete status. ``present`` is the current status; ``now`` is an RFC 3339 time."""
    failed = {one.namespace for one in failures} & set(targets)
    counts = {"desired": len(targets), "succeeded": len(targets) - len(failed), "failed": len(failed)}
    return {
        **{name: count for name, count in counts.items() if count},
        "observedGeneration": generation,
        "conditions": [_condition(type_, failures, _conditions(present).get(type_), now) for type_ in CONDITION_TYPES],
    }


def status_patch(wanted: Mapping[str, Any], present: Mapping[str, Any]) -> dict[str, Any]:
    """Return the merge patch for the status, or an empty patch if nothing differs."""
    patch = {key: value for key, value in wanted.items() if present.get(key) != value}
    return {**patch, **{key: None for key in present if key not in wanted}}


def newly_failed(wanted: Mapping[str, Any], present: Mapping[str, Any]) -> Collection[str]:
    """Return the conditions that became true or now affect different namespaces. An event is recorded for each of
    them."""
    before = _conditions(present)
    return [
        type_
        for type_, condition in _conditions(wanted).items()
        if condition["status"] == "True"
        and condition.get("failedNamespaces") != before.get(type_, {}).get("failedNamespaces")
    ]


def _conditions(status: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    found = status.get("conditions")
    listed = found if isinstance(found, list) else ()
    return {str(one.get("type")): one for one in listed if isinstance(one, Mapping)}


def _condition(type_: str, failures: Sequence[Failure], before: Mapping[str, Any] | None, now: str) -> dict[str, Any]:
    failed = [one for one in failures if one.condition == type_]
    status = "True" if failed else "False"
    changed = before is None or before.get("status") != status
    condition: dict[str, Any] = {
        "type": type_,
        "status": status,
        "lastTransitionTime": now if changed or before is None else before.get("lastTransitionTime", now),
        "reason": failed[-1].reason[:LONGEST_REASON] if failed else SUCCEEDED,
    }
    if failed:
        condition["failedNamespaces"] = sorted(one.namespace for one in failed)
    return condition
