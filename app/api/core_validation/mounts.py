"""Volume mounts and volume devices: they must name a volume, and no two may take one path."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from app.api.core_validation.paths import backstep_errors, descending_errors
from app.kube.fielderrors import FieldError, Path, forbidden, invalid, not_found, not_supported, required

Json = Mapping[str, Any]

_PROPAGATIONS: Final = ("Bidirectional", "HostToContainer", "None")
_RECURSIVE: Final = ("Disabled", "Enabled", "IfPossible")
_NO_BLOCK: Final = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode"


def mount_errors(container: Json, volumes: Mapping[str, Json], path: Path) -> list[FieldError]:
    """``volumeMounts``. ``volumes``: the valid volumes by name."""
    errors: list[FieldError] = []
    devices = {device["name"]: device["devicePath"] for device in container.get("volumeDevices", ())}
    taken: set[str] = set()
    for index, mount in enumerate(container.get("volumeMounts", ())):
        at = path.index(index)
        name, mount_path = mount["name"], mount["mountPath"]
        if not name:
            errors.append(required(at.child("name")))
        if name not in volumes:
            errors.append(not_found(at.child("name"), name))
        if not mount_path:
            errors.append(required(at.child("mountPath")))
        if mount_path in taken:
            errors.append(invalid(at.child("mountPath"), mount_path, "must be unique"))
        taken.add(mount_path)
        if name in devices:
            errors.append(invalid(at.child("name"), name, "must not already exist in volumeDevices"))
        if mount_path in devices.values():
            detail = "must not already exist as a path in volumeDevices"
            errors.append(invalid(at.child("mountPath"), mount_path, detail))
        # Kubernetes reports these at the list instead of the item.
        errors += _sub_path_errors(mount, path, at)
        errors += _mode_errors(mount, container, path)
    return errors


def _sub_path_errors(mount: Json, path: Path, at: Path) -> list[FieldError]:
    plain, expression = mount.get("subPath", ""), mount.get("subPathExpr", "")
    errors = descending_errors(plain, path.child("subPath"))
    if expression:
        if plain:
            detail = "subPathExpr and subPath are mutually exclusive"
            errors.append(invalid(at.child("subPathExpr"), expression, detail))
        errors += descending_errors(expression, path.child("subPathExpr"))
    return errors


def _mode_errors(mount: Json, container: Json, path: Path) -> list[FieldError]:
    errors: list[FieldError] = []
    propagation, recursive = mount.get("mountPropagation"), mount.get("recursiveReadOnly")
    if propagation is not None:
        at = path.child("mountPropagation")
        if propagation not in _PROPAGATIONS:
            errors.append(not_supported(at, propagation, _PROPAGATIONS))
        if propagation == "Bidirectional" and not container.get("securityContext", {}).get("privileged"):
            detail = "Bidirectional mount propagation is available only to privileged containers"
            errors.append(forbidden(at, detail))
    if recursive is not None:
        at = path.child("recursiveReadOnly")
        if recursive not in _RECURSIVE:
            errors.append(not_supported(at, recursive, _RECURSIVE))
        elif recursive != "Disabled":
            if not mount.get("readOnly"):
                errors.append(forbidden(at, "may only be specified when readOnly is true"))
            if propagation not in (None, "None"):
                detail = "may only be specified when mountPropagation is None or not specified"
                errors.append(forbidden(at, detail))
    return errors


def device_errors(container: Json, volumes: Mapping[str, Json], path: Path) -> list[FieldError]:
    """``volumeDevices``: volumes as raw block devices, which only claims can be."""
    errors: list[FieldError] = []
    mounts = {mount["name"]: mount["mountPath"] for mount in container.get("volumeMounts", ())}
    names: set[str] = set()
    taken: set[str] = set()
    for index, device in enumerate(container.get("volumeDevices", ())):
        at = path.index(index)
        name, device_path = device["name"], device["devicePath"]
        if not name:
            errors.append(required(at.child("name")))
        if name in names:
            errors.append(invalid(at.child("name"), name, "must be unique"))
        errors += _claim_errors(name, volumes, at.child("name"))
        if not device_path:
            errors.append(required(at.child("devicePath")))
        if device_path in taken:
            errors.append(invalid(at.child("devicePath"), device_path, "must be unique"))
        if backstep_errors(device_path, at):
            errors.append(invalid(at.child("devicePath"), device_path, "can not contain backsteps ('..')"))
        else:
            taken.add(device_path)
        if name in mounts:
            errors.append(invalid(at.child("name"), name, "must not already exist in volumeMounts"))
        if device_path in mounts.values():
            detail = "must not already exist as a path in volumeMounts"
            errors.append(invalid(at.child("devicePath"), device_path, detail))
        if name:
            names.add(name)
    return errors


def _claim_errors(name: str, volumes: Mapping[str, Json], path: Path) -> list[FieldError]:
    if name not in volumes:
        return [not_found(path, name)]
    claims = any(volumes[name].get(source) is not None for source in ("persistentVolumeClaim", "ephemeral"))
    return [] if claims else [invalid(path, name, _NO_BLOCK)]
