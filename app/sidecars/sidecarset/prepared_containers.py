"""The containers a SidecarSet brings, worked out once per change of the set."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from app.api import names
from app.sidecars.sidecarset.hot_upgrade import twins
from app.sidecars.sidecarset.prepared_fields import UnusableSidecarSetError, mapping, objects
from app.sidecars.sidecarset.resources_policy import ResourcesPolicy, ResourcesPolicyError, compile_policy

_INJECTED_ENV: Mapping[str, str] = {"name": names.ENV_IS_INJECTED, "value": "true"}

#: The fields a sidecar has beyond a core Container; a Pod must not get them.
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
    """SS-47: copy ``names`` (sorted) from an app container: ``container``, or the one a label or annotation names."""

    names: tuple[str, ...]
    container: str = ""
    #: "labels" or "annotations" and the key, where the container's name comes from the Pod.
    source: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class SidecarContainer:
    """A container as it enters a Pod. ``rendered`` is it in JSON, where it is the same for every Pod."""

    name: str
    body: Mapping[str, Any]
    before: bool
    #: What a patch operation for it is traced back to: the rule and the SidecarSet.
    rule: str
    rendered: orjson.Fragment | None = None


@dataclass(frozen=True, slots=True)
class PreparedSidecar:
    """One entry of ``spec.containers`` or ``spec.initContainers``. ``base`` is the core container with IS_INJECTED."""

    name: str
    base: Mapping[str, Any]
    before: bool
    rule: str
    #: SS-78: the image of the idle twin; None for a sidecar that is not hot-upgradable.
    empty_image: str | None
    share_volumes: bool
    share_devices: bool
    transfers: tuple[EnvTransfer, ...]
    resources: ResourcesPolicy | None
    #: What enters the Pod (one container, or the twins) if that is the same for every Pod, else empty.
    ready: tuple[SidecarContainer, ...]

    def containers(self, body: Mapping[str, Any]) -> tuple[SidecarContainer, ...]:
        """What enters the Pod, given the base as rendered for it."""
        if self.empty_image is None:
            return (SidecarContainer(self.name, body, self.before, self.rule),)
        return tuple(
            SidecarContainer(twin["name"], twin, self.before, self.rule) for twin in twins(body, self.empty_image)
        )


def prepare_sidecar(container: Mapping[str, Any], set_name: str, *, init: bool) -> PreparedSidecar:
    """An entry of the spec, worked out as far as it is the same for every Pod. Raises UnusableSidecarSetError."""
    name: str = container["name"]
    field = f"spec.{'initContainers' if init else 'containers'}[{name}]"
    policy = container.get("podInjectPolicy")
    upgrade = mapping(container, "upgradeStrategy", f"{field}.")
    # HotUpgrade means nothing on an init container that does not keep running (SS-34 as corrected).
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
        # SS-42, SS-44: an empty policy means behind; the defaults were filled in when the set was written.
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
    return PreparedSidecar(
        sidecar.name, sidecar.base, sidecar.before, sidecar.rule, sidecar.empty_image, False, False, (), None, ready
    )


def _transfer(entry: Mapping[str, Any]) -> EnvTransfer:
    wanted = tuple(sorted({entry.get("envName"), *(entry.get("envNames") or ())} - {None, ""}))
    field_ref = (entry.get("sourceContainerNameFrom") or {}).get("fieldRef")
    if not field_ref:  # SS-9: a sourceContainerNameFrom without fieldRef counts as absent
        return EnvTransfer(wanted, container=entry.get("sourceContainerName") or "")
    found = _SUBSCRIPTED.fullmatch(field_ref.get("fieldPath") or "")
    # SS-22: nothing else is admitted; a path of another form finds nothing.
    return EnvTransfer(wanted, source=(found[1], found[2])) if found else EnvTransfer(())


def names_in_pod(sidecars: Iterable[PreparedSidecar]) -> list[str]:
    """The names that sidecars have in a Pod, twins by their own."""
    return [
        name
        for sidecar in sidecars
        for name in ([sidecar.name] if sidecar.empty_image is None else [f"{sidecar.name}-1", f"{sidecar.name}-2"])
    ]
