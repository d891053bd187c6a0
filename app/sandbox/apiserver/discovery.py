"""Discovery documents: /api, /apis, their aggregated forms, and /version.

A :class:`ServedResource` is a resource in one group and version. Built-in resources are recorded from a real API
server; custom resources are derived from their CRDs. The documents are pure functions of the served resources.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, TypeAlias

from app.sandbox.apiserver.schemas import read_data

Document: TypeAlias = dict[str, Any]

#: The emulated server version, as printed by `kubectl version`.
KUBERNETES_VERSION: Final = "v1.34.1"
AGGREGATED_ACCEPT: Final = ("as=APIGroupDiscoveryList", "g=apidiscovery.k8s.io", "v=v2")
AGGREGATED_TYPE: Final = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

_CUSTOM_VERBS: Final = ("delete", "deletecollection", "get", "list", "patch", "create", "update", "watch")
_TERMINATING_VERBS: Final = ("delete", "deletecollection", "get", "list", "watch")
_SUBRESOURCE_VERBS: Final = ("get", "patch", "update")


@dataclass(frozen=True, slots=True)
class ServedSubresource:
    """A subresource. Group, version and kind are those of its response (such as ``autoscaling/v1`` Scale)."""

    name: str
    group: str
    version: str
    kind: str
    verbs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ServedResource:
    """A resource in one group and version. The core group is the empty string."""

    group: str
    version: str
    plural: str
    singular: str
    kind: str
    namespaced: bool
    verbs: tuple[str, ...]
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: tuple[ServedSubresource, ...] = ()

    @property
    def api_version(self) -> str:
        """Return the API version: ``v1``, ``apps/v1``."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def list_kind(self) -> str:
        """Return the list kind of a built-in kind."""
        return f"{self.kind}List"

    def subresource(self, name: str) -> ServedSubresource | None:
        """Return the subresource of this name."""
        return next((one for one in self.subresources if one.name == name), None)


# ---- served resources


@cache
def builtin_resources() -> tuple[ServedResource, ...]:
    """Return all built-in resources in discovery order: groups by priority, resources by name."""
    return tuple(
        _builtin(group["group"], version["version"], resource)
        for group in read_data("discovery.json.gz")
        for version in group["versions"]
        for resource in version["resources"]
    )


def _builtin(group: str, version: str, data: Mapping[str, Any]) -> ServedResource:
    answered = data["responseKind"]
    return ServedResource(
        group=group,
        version=version,
        plural=data["resource"],
        singular=data.get("singularResource", ""),
        kind=answered["kind"],
        namespaced=data["scope"] == "Namespaced",
        verbs=tuple(data.get("verbs", ())),
        short_names=tuple(data.get("shortNames", ())),
        categories=tuple(data.get("categories", ())),
        subresources=tuple(_builtin_subresource(group, version, one) for one in data.get("subresources", ())),
    )


def _builtin_subresource(group: str, version: str, data: Mapping[str, Any]) -> ServedSubresource:
    answered = data["responseKind"]
    # If group and version are empty, those of the resource apply.
    named = answered.get("group") or answered.get("version")
    return ServedSubresource(
        name=data["subresource"],
        group=answered.get("group", "") if named else group,
        version=answered.get("version", "") if named else version,
        kind=answered["kind"],
        verbs=tuple(data["verbs"]),
    )


def custom_resources(crd: Mapping[str, Any]) -> tuple[ServedResource, ...]:
    """Return the resources of a CustomResourceDefinition: one per served version, highest version first."""
    spec = crd["spec"]
    names = crd.get("status", {}).get("acceptedNames") or spec["names"]
    terminating = any(
        condition["type"] == "Terminating" and condition["status"] == "True"
        for condition in crd.get("status", {}).get("conditions", ())
    )
    served = sorted((one for one in spec["versions"] if one.get("served")), key=lambda one: version_order(one["name"]))
    return tuple(
        ServedResource(
            group=spec["group"],
            version=version["name"],
            plural=names["plural"],
            singular=names.get("singular", ""),
            kind=names["kind"],
            namespaced=spec["scope"] == "Namespaced",
            verbs=_TERMINATING_VERBS if terminating else _CUSTOM_VERBS,
            short_names=tuple(names.get("shortNames", ())),
            categories=tuple(names.get("categories", ())),
            subresources=_custom_subresources(spec["group"], version, names["kind"]),
        )
        for version in served
    )


def _custom_subresources(group: str, version: Mapping[str, Any], kind: str) -> tuple[ServedSubresource, ...]:
    declared = version.get("subresources") or {}
    found = []
    if declared.get("status") is not None:
        found.append(ServedSubresource("status", group, version["name"], kind, _SUBRESOURCE_VERBS))
    if declared.get("scale") is not None:
        found.append(ServedSubresource("scale", "autoscaling", "v1", "Scale", _SUBRESOURCE_VERBS))
    return tuple(found)


_VERSION = re.compile(r"v([1-9]\d*)(?:(alpha|beta)([1-9]\d*))?")
_STABILITY: Final = {None: 0, "beta": 1, "alpha": 2}


def version_order(version: str) -> tuple[int, int, int, str]:
    """Return the sort key of a version: v2, v1, v1beta2, v1alpha1, then other names alphabetically."""
    match = _VERSION.fullmatch(version)
    if match is None:
        return 3, 0, 0, version
    major, stability, minor = match.groups()
    return _STABILITY[stability], -int(major), -int(minor or 0), ""


# ---- documents


def api_versions(server_address: str) -> Document:
    """Return /api: the versions of the core group."""
    addresses = [{"clientCIDR": "0.0.0.0/0", "serverAddress": server_address}]
    return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": addresses}


def api_groups(resources: Iterable[ServedResource]) -> Document:
    """Return /apis: the named groups."""
    groups = [_group(group, versions) for group, versions in _by_group(resources).items() if group]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}


def api_group(group: str, resources: Iterable[ServedResource]) -> Document | None:
    """Return /apis/GROUP, or None if the group is not served."""
    versions = _by_group(resources).get(group)
    return {"kind": "APIGroup", "apiVersion": "v1", **_group(group, versions)} if versions else None


def _group(group: str, versions: Mapping[str, Sequence[ServedResource]]) -> Document:
    listed = [{"groupVersion": f"{group}/{version}", "version": version} for version in versions]
    return {"name": group, "versions": listed, "preferredVersion": listed[0]}


def _by_group(resources: Iterable[ServedResource]) -> dict[str, dict[str, list[ServedResource]]]:
    """Return group → version → resources: built-in groups as recorded, then others by name, versions by rank."""
    found: dict[str, dict[str, list[ServedResource]]] = {}
    for resource in sorted(resources, key=_rank):
        found.setdefault(resource.group, {}).setdefault(resource.version, []).append(resource)
    return found


def _rank(resource: ServedResource) -> tuple[int, str, tuple[int, int, int, str], str]:
    order = _builtin_order()
    return order.get(resource.group, len(order)), resource.group, version_order(resource.version), resource.plural


@cache
def _builtin_order() -> Mapping[str, int]:
    return {group["group"]: index for index, group in enumerate(read_data("discovery.json.gz"))}


def resource_list(group: str, version: str, resources: Iterable[ServedResource]) -> Document | None:
    """Return /api/v1 or /apis/GROUP/VERSION, or None if it is not served."""
    served = _by_group(resources).get(group, {}).get(version)
    if served is None:
        return None
    entries = [entry for resource in served for entry in _entries(resource)]
    if not group:  # the oldest kind of document; it has no apiVersion
        return {"kind": "APIResourceList", "groupVersion": version, "resources": entries}
    groups = f"{group}/{version}"
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": groups, "resources": entries}


def _entries(resource: ServedResource) -> Iterable[Document]:
    main: Document = {
        "name": resource.plural,
        "singularName": resource.singular,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": list(resource.verbs),
    }
    if resource.short_names:
        main["shortNames"] = list(resource.short_names)
    if resource.categories:
        main["categories"] = list(resource.categories)
    if "watch" in resource.verbs:
        main["storageVersionHash"] = _storage_version_hash(resource)
    if resource.verbs:
        yield main
    for one in resource.subresources:
        entry: Document = {
            "name": f"{resource.plural}/{one.name}",
            "singularName": "",
            "namespaced": resource.namespaced,
            "kind": one.kind,
            "verbs": list(one.verbs),
        }
        if (one.group, one.version) != (resource.group, resource.version):
            entry |= {"group": one.group, "version": one.version}
        yield entry


#: Kinds whose storage version differs from the version they are served in.
_STORED_AS: Final = {
    "events.k8s.io/v1/Event": "/v1/Event",
    "autoscaling/v1/HorizontalPodAutoscaler": "autoscaling/v2/HorizontalPodAutoscaler",
    "apiextensions.k8s.io/v1/CustomResourceDefinition": "apiextensions.k8s.io/v1beta1/CustomResourceDefinition",
    "storage.k8s.io/v1/VolumeAttributesClass": "storage.k8s.io/v1beta1/VolumeAttributesClass",
}


def _storage_version_hash(resource: ServedResource) -> str:
    served = f"{resource.group}/{resource.version}/{resource.kind}"
    stored = _STORED_AS.get(served, served)
    return base64.b64encode(hashlib.sha256(stored.encode()).digest()[:8]).decode()


def aggregated(resources: Iterable[ServedResource], *, core: bool) -> Document:
    """Return /api (``core``) or /apis as one document, which kubectl requests first."""
    items = [
        {
            "metadata": {"name": group} if group else {},
            "versions": [
                {"version": version, "resources": [_aggregated(one) for one in served], "freshness": "Current"}
                for version, served in versions.items()
            ],
        }
        for group, versions in _by_group(resources).items()
        if core == (group == "")
    ]
    return {"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items}


def _aggregated(resource: ServedResource) -> Document:
    custom = resource.group not in _builtin_order()
    own = (resource.group, resource.version) if custom else ("", "")
    entry: Document = {
        "resource": resource.plural,
        "responseKind": {"group": own[0], "version": own[1], "kind": resource.kind},
        "scope": "Namespaced" if resource.namespaced else "Cluster",
        "singularResource": resource.singular,
        "verbs": list(resource.verbs) or None,
    }
    if resource.short_names:
        entry["shortNames"] = list(resource.short_names)
    if resource.categories:
        entry["categories"] = list(resource.categories)
    if resource.subresources:
        entry["subresources"] = [_aggregated_subresource(one, resource, own) for one in resource.subresources]
    return entry


def _aggregated_subresource(one: ServedSubresource, resource: ServedResource, own: tuple[str, str]) -> Document:
    same = (one.group, one.version) == (resource.group, resource.version)
    group, version = own if same else (one.group, one.version)
    answered = {"group": group, "version": version, "kind": one.kind}
    return {"subresource": one.name, "responseKind": answered, "verbs": list(one.verbs)}


def version_info() -> Document:
    """Return /version."""
    major, minor, _ = KUBERNETES_VERSION.removeprefix("v").split(".")
    return {
        "major": major,
        "minor": minor,
        "emulationMajor": major,
        "emulationMinor": minor,
        "minCompatibilityMajor": major,
        "minCompatibilityMinor": str(int(minor) - 1),
        "gitVersion": f"{KUBERNETES_VERSION}-sandbox",
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "",
        "platform": "python",
    }
