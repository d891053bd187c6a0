"""What a copy says, whether one is up to date, and the patch that brings it there (RD-34 … RD-37, RD-70, RD-71)."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from app.api import names
from app.api.gojson import dumps_go
from app.api.jsonvalue import json_copy
from app.api.resourcedistribution import RESOURCE_DISTRIBUTION
from app.kube.resources import CONFIGMAPS, SECRETS, Resource
from app.pods.owners import Owner, controller_of, refers_to

FIELD_MANAGER: Final = "kruise-resourcedistribution"
"""What the API server notes as the writer of copies; which labels and annotations came from us is read from that."""
_RESOURCES: Final[Mapping[tuple[str, str], Resource]] = {
    ("v1", "ConfigMap"): CONFIGMAPS,
    ("v1", "Secret"): SECRETS,
}
_OPAQUE: Final = "Opaque"
#: RD-74: what an API server sets, or what would tie a copy to something else.
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
    """A resource that cannot be distributed; the text says why."""


@dataclass(frozen=True)
class Template:
    """The resource of one ResourceDistribution, in the form in which copies are written and compared."""

    owner: str
    owner_uid: str
    resource: Resource
    name: str
    #: The resource as the ResourceDistribution has it.
    manifest: Mapping[str, Any]

    @classmethod
    def of(cls, owner: str, owner_uid: str, manifest: Mapping[str, Any]) -> Template:
        """Raises TemplateError for what is no ConfigMap or Secret with a name (RD-31)."""
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
        """RD-36: the SHA-256 of the resource as an API server prints it."""
        return hashlib.sha256(dumps_go(self.manifest, sort_keys=True).encode()).hexdigest()

    @cached_property
    def content(self) -> Mapping[str, Any]:
        """RD-70: everything but metadata and status, as an API server stores it."""
        return normalized_content(self.manifest)

    @cached_property
    def labels(self) -> Mapping[str, str]:
        """The labels of every copy."""
        return _strings(self.manifest, "labels")

    @cached_property
    def annotations(self) -> Mapping[str, str]:
        """The annotations of every copy."""
        return {
            **_strings(self.manifest, "annotations"),
            names.RESOURCE_DISTRIBUTION_SOURCE: self.owner,
            names.RESOURCE_DISTRIBUTION_HASH: self.digest,
        }

    @cached_property
    def finalizers(self) -> tuple[str, ...]:
        """The finalizers of every copy."""
        found = (self.manifest.get("metadata") or {}).get("finalizers")
        return tuple(one for one in found if isinstance(one, str)) if isinstance(found, list) else ()

    @property
    def controller(self) -> Owner:
        """The ResourceDistribution, as its copies refer to it."""
        resource = RESOURCE_DISTRIBUTION.resource()
        return Owner(resource.api_version, resource.kind, self.owner, "", self.owner_uid)

    @property
    def owner_reference(self) -> dict[str, Any]:
        """RD-36: the managing owner of every copy."""
        return self.controller.reference

    def copy(self, namespace: str) -> dict[str, Any]:
        """RD-36: the object to create in ``namespace``."""
        given = self.manifest.get("metadata") or {}
        metadata = {key: json_copy(value) for key, value in given.items() if key not in _NOT_COPIED}
        metadata |= {"namespace": namespace, "annotations": dict(self.annotations)}
        metadata["ownerReferences"] = [self.owner_reference]
        content = {key: json_copy(value) for key, value in self.manifest.items() if key not in ("metadata", "status")}
        return {**content, "metadata": metadata}


def without_identity(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """RD-74: a manifest without what an API server sets."""
    metadata = manifest.get("metadata")
    if not isinstance(metadata, dict):
        return dict(manifest)
    return {**manifest, "metadata": {key: value for key, value in metadata.items() if key not in _NOT_COPIED}}


def normalized_content(obj: Mapping[str, Any]) -> dict[str, Any]:
    """RD-35, RD-70: an object without metadata, status and empty fields; of a Secret with the default type, and with
    what ``stringData`` says where an API server puts it."""
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


def update_patch(template: Template, copy: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON merge patch that makes ``copy`` (as read, kind and apiVersion may be missing) what it should be; empty
    if it is that already.

    RD-37, RD-71: content is replaced; labels and annotations that others added stay, those that came from an earlier
    state of the template go.
    """
    present = normalized_content({"kind": template.resource.kind, "apiVersion": template.resource.api_version, **copy})
    patch = _replacement(present, template.content)
    metadata = _metadata_patch(template, copy.get("metadata") or {})
    if metadata:
        patch["metadata"] = metadata
    if patch and len((copy.get("metadata") or {}).get("ownerReferences") or ()) > 1:
        patch.setdefault("metadata", {})["ownerReferences"] = [template.owner_reference]
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
    """Which labels and annotations came from us, by field, as the API server noted."""
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
    """The merge patch from one JSON object to another, down to the entries of maps."""
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
