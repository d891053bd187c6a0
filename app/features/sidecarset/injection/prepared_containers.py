"""The containers of a SidecarSet prepared for injection, with twins for hot upgrades."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import orjson

from app.api import names
from app.api.gojson import dumps_go
from app.features.sidecarset.injection.metadata import MAX_COMMAS
from app.features.sidecarset.injection.resources import ResourcesPolicy, ResourcesPolicyError, compile_policy
from app.kube.selector_query import SelectorError
from app.kube.selectors import Selector, compile_selector


class UnusableSidecarSetError(ValueError):
    """A SidecarSet, or a revision of one, that cannot be injected. The message names the field and the reason."""


class MalformedSidecarSetError(UnusableSidecarSetError):
    """A SidecarSet with a field of the wrong type. It bypassed all checks, so none of its fields can be trusted:
    it is not injected, and does not prevent any Pod from being created."""


def selector_of(spec: Mapping[str, Any], field: str) -> Selector | None:
    """Return the selector in a field of a spec, or None. Raises UnusableSidecarSetError."""
    value = spec.get(field)
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise MalformedSidecarSetError(f"spec.{field}: expected an object")
    try:
        return compile_selector(value)
    except SelectorError as error:
        raise UnusableSidecarSetError(f"spec.{field}: {error}") from error


def mapping(holder: Mapping[str, Any], field: str, prefix: str = "") -> Mapping[str, Any]:
    """Return the object in a field, or an empty one. Raises MalformedSidecarSetError."""
    value = holder.get(field)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise MalformedSidecarSetError(f"{prefix}{field}: expected an object")
    return value


def refuse_other_than_text(holder: Mapping[str, Any], field: str, prefix: str) -> None:
    """Raise MalformedSidecarSetError if the field is present but not a string."""
    if not isinstance(holder.get(field) or "", str):
        raise MalformedSidecarSetError(f"{prefix}{field}: expected a string")


def objects(
    holder: Mapping[str, Any], field: str, parent: str = "spec", *, named: bool = False
) -> Sequence[Mapping[str, Any]]:
    """Return the objects in a list, each of which must have a name if ``named``. Raises MalformedSidecarSetError."""
    value = holder.get(field)
    if value is None:
        return ()
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise MalformedSidecarSetError(f"{parent}.{field}: expected a list")
    for index, item in enumerate(value):
        if not isinstance(item, Mapping):
            raise MalformedSidecarSetError(f"{parent}.{field}[{index}]: expected an object")
        if named and not isinstance(item.get("name"), str):
            raise MalformedSidecarSetError(f"{parent}.{field}[{index}].name: expected a string")
    return value


def twins(container: Mapping[str, Any], empty_image: str) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Return the working container ``<name>-1`` and the idle one ``<name>-2``, which runs ``empty_image``. [SS-78]"""
    name = container["name"]
    return _twin(container, f"{name}-1", container.get("image")), _twin(container, f"{name}-2", empty_image)


def _twin(container: Mapping[str, Any], name: str, image: Any) -> Mapping[str, Any]:
    version = f"{names.SIDECARSET_VERSION_PREFIX}{name}"
    version_alt = f"{names.SIDECARSET_VERSION_ALT_PREFIX}{name}"
    env = [
        *(container.get("env") or ()),
        _from_annotation(names.ENV_SIDECARSET_VERSION, version),
        _from_annotation(names.ENV_SIDECARSET_VERSION_ALT, version_alt),
    ]
    return {**container, "name": name, "image": image, "env": env}


def _from_annotation(env_name: str, key: str) -> Mapping[str, Any]:
    field = {"apiVersion": "v1", "fieldPath": f"metadata.annotations['{key}']"}
    return {"name": env_name, "valueFrom": {"fieldRef": field}}


def version_annotations(hot: Iterable[str], present: Mapping[str, str]) -> dict[str, str]:
    """Return the annotations to set for the sidecars in ``hot``; ``present`` holds the Pod's annotations. [SS-79]"""
    annotations: dict[str, str] = {}
    working = _working(present.get(names.SIDECARSET_WORKING_HOT_UPGRADE_CONTAINER, ""))
    for name in hot:
        # The working twin starts with version "1" and alternative version "0"; for the idle twin, it is the reverse.
        annotations[f"{names.SIDECARSET_VERSION_PREFIX}{name}-1"] = "1"
        annotations[f"{names.SIDECARSET_VERSION_ALT_PREFIX}{name}-1"] = "0"
        annotations[f"{names.SIDECARSET_VERSION_PREFIX}{name}-2"] = "0"
        annotations[f"{names.SIDECARSET_VERSION_ALT_PREFIX}{name}-2"] = "1"
        working[name] = f"{name}-1"
    if annotations:
        annotations[names.SIDECARSET_WORKING_HOT_UPGRADE_CONTAINER] = dumps_go(working, sort_keys=True)
    return annotations


def _working(text: str) -> dict[str, str]:
    """Return the working twin of each sidecar as recorded in the annotation. An unreadable or very long annotation is
    ignored and rewritten. [SS-80]"""
    try:
        value = orjson.loads(text) if text.count(",") <= MAX_COMMAS else None
    except orjson.JSONDecodeError:
        return {}
    if not isinstance(value, dict):
        return {}
    return {name: twin for name, twin in value.items() if isinstance(twin, str)}


_INJECTED_ENV: Mapping[str, str] = {"name": names.ENV_IS_INJECTED, "value": "true"}

#: Fields of a sidecar that a core Container does not have; they must not reach a Pod.
_EXTENSIONS = frozenset(
    {
        "podInjectPolicy",
        "upgradeStrategy",
        "shareVolumePolicy",
        "shareVolumeDevicePolicy",
        "transferEnv",
        "resourcesPolicy",
    }
)
_SUBSCRIPTED = re.compile(r"metadata\.(labels|annotations)\['([^']+)'\]")


@dataclass(frozen=True, slots=True)
class EnvTransfer:
    """Variables to copy from an app container, whose name is ``container`` or is read from the Pod. [SS-47]"""

    names: tuple[str, ...]
    container: str = ""
    #: "labels" or "annotations" and the key, if the container's name comes from the Pod.
    source: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class SidecarContainer:
    """A container to add to a Pod. ``rendered`` is its JSON if it is the same for every Pod."""

    name: str
    body: Mapping[str, Any]
    before: bool
    #: Origin of the patch operation: the rule and the SidecarSet.
    rule: str
    rendered: orjson.Fragment | None = None


@dataclass(frozen=True, slots=True)
class PreparedSidecar:
    """One entry of ``spec.containers`` or ``spec.initContainers``. ``base`` is the core container with IS_INJECTED."""

    name: str
    base: Mapping[str, Any]
    before: bool
    rule: str
    #: The image of the idle twin; None for a sidecar that is not hot-upgradable. [SS-78]
    empty_image: str | None
    share_volumes: bool
    share_devices: bool
    transfers: tuple[EnvTransfer, ...]
    resources: ResourcesPolicy | None
    #: The containers to add (one, or the twins) if they are the same for every Pod, else empty.
    ready: tuple[SidecarContainer, ...]

    def containers(self, body: Mapping[str, Any]) -> tuple[SidecarContainer, ...]:
        """Return the containers to add, given the base as rendered for the Pod."""
        if self.empty_image is None:
            return (SidecarContainer(self.name, body, self.before, self.rule),)
        return tuple(
            SidecarContainer(twin["name"], twin, self.before, self.rule) for twin in twins(body, self.empty_image)
        )


def prepare_sidecar(container: Mapping[str, Any], set_name: str, *, init: bool) -> PreparedSidecar:
    """Precompute the part of an entry that is the same for every Pod. Raises UnusableSidecarSetError."""
    name: str = container["name"]
    field = f"spec.{'initContainers' if init else 'containers'}[{name}]"
    policy = container.get("podInjectPolicy")
    upgrade = mapping(container, "upgradeStrategy", f"{field}.")
    # HotUpgrade has no effect on a plain init container. [SS-34]
    hot = upgrade.get("upgradeType") == "HotUpgrade" and (not init or container.get("restartPolicy") == "Always")
    base = {key: value for key, value in container.items() if key not in _EXTENSIONS}
    base["env"] = [*objects(container, "env", field), _INJECTED_ENV]
    share_volumes = mapping(container, "shareVolumePolicy", f"{field}.").get("type") == "enabled"
    share_devices = mapping(container, "shareVolumeDevicePolicy", f"{field}.").get("type") == "enabled"
    transfers = tuple(_transfer(entry) for entry in objects(container, "transferEnv", field))
    resources = container.get("resourcesPolicy")
    sidecar = PreparedSidecar(
        name=name,
        base=base,
        # Defaults were set when the set was written; a policy that is still empty means AfterAppContainer. [SS-42,
        # SS-44]
        before=policy == "BeforeAppContainer",
        rule=f"{'SS-44' if init else 'SS-45' if hot else 'SS-42'} SidecarSet {set_name}",
        empty_image=(upgrade.get("hotUpgradeEmptyImage") or "") if hot else None,
        share_volumes=share_volumes,
        share_devices=share_devices,
        transfers=tuple(transfer for transfer in transfers if transfer.names),
        resources=_policy(resources, name) if resources is not None else None,
        ready=(),
    )
    if share_volumes or share_devices or sidecar.transfers or sidecar.resources is not None:
        return sidecar
    return _with_ready(sidecar)


def _policy(policy: Mapping[str, Any], container: str) -> ResourcesPolicy:
    try:
        return compile_policy(policy)
    except ResourcesPolicyError as error:
        raise UnusableSidecarSetError(f"container {container}: {error}") from error


def _with_ready(sidecar: PreparedSidecar) -> PreparedSidecar:
    ready = tuple(
        SidecarContainer(c.name, c.body, c.before, c.rule, orjson.Fragment(orjson.dumps(c.body)))
        for c in sidecar.containers(sidecar.base)
    )
    return replace(sidecar, ready=ready)


def _transfer(entry: Mapping[str, Any]) -> EnvTransfer:
    wanted = tuple(sorted({entry.get("envName"), *(entry.get("envNames") or ())} - {None, ""}))
    field_ref = (entry.get("sourceContainerNameFrom") or {}).get("fieldRef")
    if not field_ref:  # A sourceContainerNameFrom without fieldRef counts as absent. [SS-9]
        return EnvTransfer(wanted, container=entry.get("sourceContainerName") or "")
    found = _SUBSCRIPTED.fullmatch(field_ref.get("fieldPath") or "")
    # Admission rejects any other path. If one is stored anyway, it matches nothing. [SS-22]
    return EnvTransfer(wanted, source=(found[1], found[2])) if found else EnvTransfer(())


def names_in_pod(sidecars: Iterable[PreparedSidecar]) -> list[str]:
    """Return the names that sidecars have in a Pod; for twins, both names."""
    return [
        name
        for sidecar in sidecars
        for name in ([sidecar.name] if sidecar.empty_image is None else [f"{sidecar.name}-1", f"{sidecar.name}-2"])
    ]
