"""What a sidecar takes over from the Pod's app containers: env entries, volume mounts and devices. Rules SS-46 … SS-51.

Pure: the Pod as it was before anything was merged in, and one prepared sidecar, give the container's body.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from app.api import names
from app.pods.draft import Container
from app.sidecars.sidecarset.prepared_containers import EnvTransfer, PreparedSidecar
from app.sidecars.sidecarset.refusal import InjectionRefusedError

#: SS-50: a variable in a subPathExpr.
_VARIABLE = re.compile(r"\$\(([-._a-zA-Z][-._a-zA-Z0-9]*)\)")


class SharingSource:
    """What one Pod has to give: its containers before merging, its labels and its (patched) annotations."""

    __slots__ = ("_env", "_variables", "annotations", "app_containers", "labels")

    def __init__(
        self, containers: Sequence[Container], labels: Mapping[str, str], annotations: Mapping[str, str]
    ) -> None:
        self.labels = labels
        self.annotations = annotations
        #: SS-49, SS-59: former sidecars of an exported Pod are no app containers.
        self.app_containers = [container for container in containers if not _is_injected(container)]
        self._env = {
            (container["name"], entry.get("name")): entry
            for container in containers
            for entry in container.get("env") or ()
        }
        #: Position of an app container → its variables by name; of several the first counts.
        self._variables: dict[int, Mapping[Any, Mapping[str, Any]]] = {}

    def variables(self, position: int) -> Mapping[Any, Mapping[str, Any]]:
        """The env of the app container at a position, by name. Looked through once, however many mounts use it."""
        known = self._variables.get(position)
        if known is None:
            env = self.app_containers[position].get("env") or ()
            known = self._variables[position] = {entry.get("name"): entry for entry in reversed(env)}
        return known

    def transferred(self, transfer: EnvTransfer) -> list[Mapping[str, Any]]:
        """SS-47: the entries one transfer copies; what is missing is skipped."""
        container = transfer.container
        if transfer.source is not None:
            holder, key = transfer.source
            container = (self.labels if holder == "labels" else self.annotations).get(key, "")
        found = (self._env.get((container, name)) for name in transfer.names)
        return [entry for entry in found if entry is not None]


def rendered(sidecar: PreparedSidecar, source: SharingSource, set_name: str) -> dict[str, Any]:
    """The sidecar's container for one Pod, with what it takes over from it.

    Raises InjectionRefusedError where a shared subPathExpr could not mean the same in the sidecar (SS-50).
    """
    body = dict(sidecar.base)
    env = _Env(sidecar, set_name)
    for transfer in sidecar.transfers:
        for entry in source.transferred(transfer):
            env.add(entry, "transferEnv")
    taken = {device.get("devicePath") for device in body.get("volumeDevices") or ()}
    mounts = list(body.get("volumeMounts") or ())
    taken.update(mount.get("mountPath") for mount in mounts)
    if sidecar.share_volumes:
        for position, container in enumerate(source.app_containers):
            for mount in container.get("volumeMounts") or ():
                shared = mount.get("mountPath") not in taken
                if shared:
                    taken.add(mount.get("mountPath"))
                    mounts.append(mount)
                if mount.get("subPathExpr"):
                    env.share_variables(mount, container, source.variables(position), shared)
        if mounts:
            body["volumeMounts"] = mounts
    if sidecar.share_devices:
        # SS-51: after the mounts, so that a path taken by any of them is skipped.
        devices = list(body.get("volumeDevices") or ())
        for container in source.app_containers:
            for device in container.get("volumeDevices") or ():
                if device.get("devicePath") not in taken:
                    taken.add(device.get("devicePath"))
                    devices.append(device)
        if devices:
            body["volumeDevices"] = devices
    body["env"] = env.entries
    return body


class _Env:
    """SS-46: own env, IS_INJECTED, transferred entries, then those shared mounts need; of one name the first stays."""

    __slots__ = ("_origin", "_set_name", "_sidecar", "entries")

    def __init__(self, sidecar: PreparedSidecar, set_name: str) -> None:
        self._sidecar = sidecar
        self._set_name = set_name
        self.entries: list[Mapping[str, Any]] = list(sidecar.base["env"])
        #: Name → the entry that counts and where it is from.
        self._origin: dict[Any, tuple[Mapping[str, Any], str]] = {
            entry.get("name"): (entry, f"its own env in SidecarSet {set_name}") for entry in self.entries
        }

    def add(self, entry: Mapping[str, Any], origin: str) -> None:
        """Append an entry unless there is one of its name."""
        if entry.get("name") not in self._origin:
            self._origin[entry.get("name")] = (entry, origin)
            self.entries.append(entry)

    def share_variables(
        self,
        mount: Mapping[str, Any],
        container: Container,
        variables: Mapping[Any, Mapping[str, Any]],
        shared: bool,
    ) -> None:
        """SS-50: copy the variables of a mount's subPathExpr, also where the mount itself was skipped.

        ``variables`` is the container's env by name.
        """
        for name in _VARIABLE.findall(mount["subPathExpr"]):
            entry = variables.get(name)
            if entry is None:
                continue
            self.add(entry, f"container {container['name']}")
            present, origin = self._origin[name]
            if shared and not _same_value(present, entry):
                # The sidecar would silently write to another directory than the app container.
                raise InjectionRefusedError(
                    f"SidecarSet {self._set_name}: container {self._sidecar.name} cannot share mount "
                    f"{mount.get('mountPath')} of container {container['name']}: its subPathExpr uses $({name}), which "
                    f"has one value from container {container['name']} and another from {origin}; use one value, or "
                    f"set shareVolumePolicy.type to disabled",
                    self._set_name,
                )


def _is_injected(container: Container) -> bool:
    return any(
        entry.get("name") == names.ENV_IS_INJECTED and entry.get("value") == "true"
        for entry in container.get("env") or ()
    )


def _same_value(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    if one is other:
        return True
    return (one.get("value") or "") == (other.get("value") or "") and _reference(one) == _reference(other)


def _reference(entry: Mapping[str, Any]) -> Any:
    """``valueFrom`` with the API version the API server fills in."""
    value_from = entry.get("valueFrom")
    if value_from and value_from.get("fieldRef"):
        return {**value_from, "fieldRef": {"apiVersion": "v1", **value_from["fieldRef"]}}
    return value_from or None
