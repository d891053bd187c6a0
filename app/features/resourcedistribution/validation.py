"""Validates ResourceDistributions. Pure. The API server checks the content of the resource. [RD-12 … RD-14, RD-16,
RD-74]"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from app.features.resourcedistribution.plan import SYSTEM_NAMESPACES, listed_names
from app.features.resourcedistribution.types import DistributionTargets, NamespaceList, ResourceDistribution
from app.kube.fielderrors import FieldError, GoLiteral, Path, invalid, quote, required
from app.kube.selectors import go_label_selector, validate_selector
from app.kube.validation import is_dns1123_label

RESOURCE: Final = Path("spec").child("resource")
TARGETS: Final = Path("spec").child("targets")
KINDS: Final = ("Secret", "ConfigMap")


def set_errors(given: ResourceDistribution, older: ResourceDistribution | None) -> list[FieldError]:
    """Return the errors in the object. ``older`` is the stored object, whose immutable fields must not change."""
    return [*resource_errors(given.spec.resource, older), *target_errors(given.spec.targets)]


def resource_errors(resource: Mapping[str, Any], older: ResourceDistribution | None) -> list[FieldError]:
    """Validate the resource. [RD-12 … RD-14]"""
    if not resource:
        return [required(RESOURCE)]
    kind = resource.get("kind")
    if resource.get("apiVersion") != "v1" or kind not in KINDS:
        detail = f"unknown or unsupported resource GroupKind, only support [{' '.join(KINDS)}]"
        return [invalid(RESOURCE, GoLiteral(_group_kind(resource)), detail)]
    if older is not None and _identity(resource) != _identity(older.spec.resource):
        return [invalid(RESOURCE, None, "resource apiVersion, kind, and name are immutable")]
    return []


def target_errors(targets: DistributionTargets) -> list[FieldError]:
    """Validate the targets. [RD-16]"""
    errors: list[FieldError] = []
    for field, given in (
        ("includedNamespaces", targets.included_namespaces),
        ("excludedNamespaces", targets.excluded_namespaces),
    ):
        errors += [
            invalid(TARGETS.child(field), name, message)
            for name in listed_names(given)
            for message in is_dns1123_label(name)
        ]
    both = sorted({*listed_names(targets.included_namespaces)} & {*listed_names(targets.excluded_namespaces)})
    if both:
        lists = "in both IncludedNamespaces.List and ExcludedNamespaces.List"
        text = f"ambiguous targets because namespace {', '.join(both)} is {lists}"
        errors.append(invalid(TARGETS, _go_targets(targets), text))
    errors += validate_selector(targets.namespace_selector, TARGETS.child("namespaceSelector"))
    return errors


def warnings(given: ResourceDistribution) -> tuple[str, ...]:
    """Return warnings about fields that are accepted but have no effect."""
    targets, found = given.spec.targets, []
    system = [name for name in listed_names(targets.included_namespaces) if name in SYSTEM_NAMESPACES]
    if system:
        found.append(f"spec.targets.includedNamespaces: {', '.join(system)} never gets a copy")
    selects = bool(targets.namespace_selector and any(targets.namespace_selector.values()))
    if not (targets.all_namespaces or selects or set(listed_names(targets.included_namespaces)) - set(system)):
        found.append("spec.targets: no namespace is a target, because an empty selector selects none")
    metadata = given.spec.resource.get("metadata")
    if isinstance(metadata, dict) and metadata.get("namespace"):
        found.append("spec.resource.metadata.namespace is ignored: each copy is created in its target namespace")
    return tuple(found)


def _go_targets(targets: DistributionTargets) -> GoLiteral:
    """Return the targets formatted like Go's ``%#v``, as in OpenKruise's message."""
    selector = go_label_selector(targets.namespace_selector).text
    return GoLiteral(
        f"v1beta1.ResourceDistributionTargets{{AllNamespaces:{str(targets.all_namespaces).lower()}, "
        f"ExcludedNamespaces:{_go_list(targets.excluded_namespaces)}, "
        f"IncludedNamespaces:{_go_list(targets.included_namespaces)}, NamespaceSelector:{selector}}}"
    )


def _go_list(given: NamespaceList | None) -> str:
    item = "v1beta1.ResourceDistributionNamespace"
    names = [f"{item}{{Name:{quote(name)}}}" for name in listed_names(given)]
    listed = f"{{{', '.join(names)}}}" if names else "(nil)"
    return f"v1beta1.ResourceDistributionTargetNamespaces{{List:[]{item}{listed}}}"


def _group_kind(resource: Mapping[str, Any]) -> str:
    group, _, _ = str(resource.get("apiVersion") or "").rpartition("/")
    kind = str(resource.get("kind") or "")
    return f"{kind}.{group}" if group else kind


def _identity(resource: Mapping[str, Any]) -> tuple[Any, Any, Any]:
    metadata = resource.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    return resource.get("apiVersion"), resource.get("kind"), name or ""
