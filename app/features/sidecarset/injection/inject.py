"""Injects sidecars into a Pod, with the volumes and variables they share, or refuses the Pod."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any, Final, NamedTuple

from app.api import names
from app.features.sidecarset.injection.metadata import (
    MetadataPatchError,
    hash_record,
    injected_list,
    kept_members,
    patched_annotations,
)
from app.features.sidecarset.injection.prepared import PreparedContent, PreparedVolume
from app.features.sidecarset.injection.prepared_containers import (
    EnvTransfer,
    PreparedSidecar,
    SidecarContainer,
    version_annotations,
)
from app.features.sidecarset.injection.resources import ResourcesPolicy, ResourcesPolicyError, evaluate, targets
from app.pods.admission_draft import Container, ContainerList, PodDraft, PodRefusedError


class InjectionRefusedError(PodRefusedError):
    """A Pod cannot be created while these SidecarSets apply to it. Each set gets an event. [SS-120]"""

    def __init__(self, message: str, *sets: str) -> None:
        super().__init__(message)
        self.sets = sets


# What a sidecar shares with the Pod's app containers: env entries, volume mounts and devices. Each sidecar container is
# built from the original Pod and one prepared sidecar. [SS-46 … SS-51]

#: A variable in a subPathExpr. [SS-50]
_VARIABLE = re.compile(r"\$\(([-._a-zA-Z][-._a-zA-Z0-9]*)\)")


class SharingSource:
    """What sidecars copy from: the containers of the Pod before merging, its labels and its (patched) annotations."""

    __slots__ = ("_env", "_variables", "annotations", "app_containers", "labels")

    def __init__(
        self, containers: Sequence[Container], labels: Mapping[str, str], annotations: Mapping[str, str]
    ) -> None:
        self.labels = labels
        self.annotations = annotations
        #: Former sidecars in a Pod manifest exported from a cluster are not app containers. [SS-49, SS-59]
        self.app_containers = [container for container in containers if not _is_injected(container)]
        self._env = {
            (container["name"], entry.get("name")): entry
            for container in containers
            for entry in container.get("env") or ()
        }
        #: Position of an app container → its variables by name; the first of each name wins.
        self._variables: dict[int, Mapping[Any, Mapping[str, Any]]] = {}

    def variables(self, position: int) -> Mapping[Any, Mapping[str, Any]]:
        """Return the env of the app container at a position, by name. Cached, because many mounts may use it."""
        known = self._variables.get(position)
        if known is None:
            env = self.app_containers[position].get("env") or ()
            known = self._variables[position] = {entry.get("name"): entry for entry in reversed(env)}
        return known

    def transferred(self, transfer: EnvTransfer) -> list[Mapping[str, Any]]:
        """Return the entries that a transfer copies; missing variables are skipped. [SS-47]"""
        container = transfer.container
        if transfer.source is not None:
            holder, key = transfer.source
            container = (self.labels if holder == "labels" else self.annotations).get(key, "")
        found = (self._env.get((container, name)) for name in transfer.names)
        return [entry for entry in found if entry is not None]


def rendered(sidecar: PreparedSidecar, source: SharingSource, set_name: str) -> dict[str, Any]:
    """Return the sidecar's container for one Pod, with everything it shares.

    Raises InjectionRefusedError if a shared subPathExpr could resolve differently in the sidecar. [SS-50]
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
        # Add devices after mounts, so that a device with the path of a mount is skipped. [SS-51]
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
    """The sidecar's env: its own entries, IS_INJECTED, transferred entries, then those that shared mounts need. If a
    name is repeated, the first entry wins. [SS-46]"""

    __slots__ = ("_equal", "_origin", "_set_name", "_sidecar", "entries")

    def __init__(self, sidecar: PreparedSidecar, set_name: str) -> None:
        self._sidecar = sidecar
        self._set_name = set_name
        self.entries: list[Mapping[str, Any]] = list(sidecar.base["env"])
        own = f"its own env in SidecarSet {set_name}"
        #: Name → the effective entry and its origin.
        self._origin: dict[Any, tuple[Mapping[str, Any], str]] = {
            entry.get("name"): (entry, own) for entry in self.entries
        }
        #: The ``id()`` of entries known to equal the effective ones, so that a value of a megabyte that thousands of
        #: mounts use is compared only once.
        self._equal: set[int] = set()

    def add(self, entry: Mapping[str, Any], origin: str) -> None:
        """Append an entry unless its name is taken."""
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
        """Copy the variables of a mount's subPathExpr, even if the mount itself was skipped. [SS-50]

        ``variables`` is the container's env by name.
        """
        for name in dict.fromkeys(_VARIABLE.findall(mount["subPathExpr"])):
            entry = variables.get(name)
            if entry is None:
                continue
            self.add(entry, f"container {container['name']}")
            if not shared or id(entry) in self._equal:
                continue
            present, origin = self._origin[name]
            if not _same_value(present, entry):
                # Otherwise, the sidecar would silently write to a different directory than the app container.
                raise InjectionRefusedError(
                    f"SidecarSet {self._set_name}: container {self._sidecar.name} cannot share mount "
                    f"{mount.get('mountPath')} of container {container['name']}: its subPathExpr uses $({name}), which "
                    f"has one value from container {container['name']} and another from {origin}; use one value, or "
                    f"set shareVolumePolicy.type to disabled",
                    self._set_name,
                )
            self._equal.add(id(entry))


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
    """Return ``valueFrom`` with the default API version that the API server would set."""
    value_from = entry.get("valueFrom")
    if value_from and value_from.get("fieldRef"):
        return {**value_from, "fieldRef": {"apiVersion": "v1", **value_from["fieldRef"]}}
    return value_from or None


# Injection of SidecarSets into a new Pod: ``plan_injection`` is pure and returns a plan, and ``inject`` writes it into
# the draft. The rules are SS-41 … SS-59, in the order of SS-41.

_NOTHING: Mapping[str, str] = {}
_BY_NAME = attrgetter("name")
_SHARED: Final = ("env", "volumeMounts", "volumeDevices")
#: Maximum number of env entries, mounts and devices of all sidecars of a Pod. A Pod of 3 MB may have 90,000 mounts to
#: share with the sidecars of fifty sets.
MAX_SHARED: Final = 100_000


# These are created for every Pod. Creating a named tuple takes a third of the time of creating a dataclass.


class Placement(NamedTuple):
    """A sidecar and its position in the list, where it replaces a container or is inserted."""

    container: SidecarContainer
    position: int
    replaces: bool


class InjectionPlan(NamedTuple):
    """Everything the applied sets change in one Pod. Placements must be applied in order."""

    #: Annotations from patchPodMetadata, and the sets that define them. If no set has a sidecar, these annotations
    #: are the only change. [SS-53]
    metadata: Mapping[str, str]
    patching: tuple[str, ...] = ()
    init_containers: tuple[Placement, ...] = ()
    containers: tuple[Placement, ...] = ()
    volumes: tuple[PreparedVolume, ...] = ()
    #: All imagePullSecrets of the Pod, or None if unchanged.
    image_pull_secrets: tuple[Mapping[str, Any], ...] | None = None
    #: Annotations that record the injection [SS-56, SS-57], and whether any sidecar is hot-upgradable [SS-79].
    annotations: Mapping[str, str] | None = None
    hot: bool = False


def plan_injection(
    pod: PodDraft, contents: Sequence[PreparedContent], now: str, *, sort_by_name: bool
) -> InjectionPlan:
    """Return the changes that these contents (one per applied set, in set order) make to ``pod``.

    ``now`` is the time written to the hash annotations (RFC 3339). ``sort_by_name`` is feature gate
    EnableSortSidecarContainerByName [SS-43]. Raises PodRefusedError; InjectionRefusedError if a set is the cause.
    """
    annotations = pod.annotations
    patching = tuple([content.set_name for content in contents if content.metadata])
    metadata = _patched(pod, annotations, contents) if patching else _NOTHING
    injecting = [content for content in contents if content.injects]
    if not injecting:
        return InjectionPlan(metadata, patching)
    _refuse_clashes(pod, injecting)
    if metadata:
        annotations = {**annotations, **metadata}
    init_containers, containers = _sidecars(pod, annotations, injecting)
    # Init containers are always sorted by name [SS-44], containers only with the gate [SS-43]. Sorting is stable.
    init_containers.sort(key=_BY_NAME)
    if sort_by_name:
        containers.sort(key=_BY_NAME)
    return InjectionPlan(
        metadata=metadata,
        patching=patching,
        init_containers=_placements(pod.init_containers, init_containers),
        containers=_placements(pod.containers, containers),
        volumes=_new_volumes(pod.volumes, injecting),
        image_pull_secrets=_secrets(pod.image_pull_secrets, injecting),
        annotations=_records(pod, annotations, contents, injecting, now),
        hot=any(content.hot for content in injecting),
    )


def inject(plan: InjectionPlan, draft: PodDraft) -> None:
    """Write the plan into the draft."""
    if plan.metadata:
        draft.set_annotations(plan.metadata, f"SS-53 SidecarSet {', '.join(plan.patching)}")
    if plan.annotations is None:
        return
    _place(draft, plan.init_containers, "initContainers")
    _place(draft, plan.containers, "containers")
    for volume in plan.volumes:
        draft.add_volume(volume.body, volume.rule, rendered=volume.rendered)
    if plan.image_pull_secrets is not None:
        draft.set_image_pull_secrets(plan.image_pull_secrets, "SS-52")
    draft.set_annotations(plan.annotations, "SS-56 SS-57 SS-79" if plan.hot else "SS-56 SS-57")


def _place(draft: PodDraft, placements: Iterable[Placement], into: ContainerList) -> None:
    for placement in placements:
        container = placement.container
        change = draft.replace_container if placement.replaces else draft.insert_container
        change(placement.position, container.body, container.rule, into=into, rendered=container.rendered)


def _patched(pod: PodDraft, annotations: Mapping[str, str], contents: Iterable[PreparedContent]) -> Mapping[str, str]:
    try:
        return patched_annotations(annotations, (patch for content in contents for patch in content.metadata))
    except MetadataPatchError as error:
        raise InjectionRefusedError(f"{pod.display}: {error}", error.set_name) from error


def _sidecars(
    pod: PodDraft, annotations: Mapping[str, str], contents: Sequence[PreparedContent]
) -> tuple[list[SidecarContainer], list[SidecarContainer]]:
    """Return the init containers and containers of all sets for this Pod, in set order and then spec order."""
    source: SharingSource | None = None
    shared = 0
    init_containers: list[SidecarContainer] = []
    containers: list[SidecarContainer] = []
    for content in contents:
        for group, out in ((content.init_containers, init_containers), (content.containers, containers)):
            for sidecar in group:
                if sidecar.ready:
                    out += sidecar.ready
                    continue
                if source is None:
                    source = SharingSource(pod.containers, pod.labels, annotations)
                body = rendered(sidecar, source, content.set_name)
                shared += sum(len(body.get(field) or ()) for field in _SHARED)
                if shared > MAX_SHARED:
                    what = f"more than {MAX_SHARED} mounts, devices and variables, including shared ones"
                    raise PodRefusedError(f"{pod.display}: its sidecars would have {what}")
                if sidecar.resources is not None:
                    where = f"SidecarSet {content.set_name}: container {sidecar.name}"
                    body["resources"] = _resources(pod, sidecar.resources, contents, content.set_name, where)
                out += sidecar.containers(body)
    return init_containers, containers


def _placements(present: Sequence[Container], sidecars: Sequence[SidecarContainer]) -> tuple[Placement, ...]:
    """Return where each sidecar goes: those already in the list keep their position, the others precede or follow the
    list. [SS-42]"""
    if not sidecars:
        return ()
    positions = {container["name"]: index for index, container in enumerate(present)}
    replacing = [Placement(sidecar, positions[sidecar.name], True) for sidecar in sidecars if sidecar.name in positions]
    new = [sidecar for sidecar in sidecars if sidecar.name not in positions] if replacing else sidecars
    before = [sidecar for sidecar in new if sidecar.before]
    after = [sidecar for sidecar in new if not sidecar.before] if len(before) < len(new) else []
    end = len(before) + len(present)
    return (
        *replacing,
        *(Placement(sidecar, index, False) for index, sidecar in enumerate(before)),
        *(Placement(sidecar, end + index, False) for index, sidecar in enumerate(after)),
    )


def _new_volumes(
    present: Sequence[Mapping[str, Any]], contents: Iterable[PreparedContent]
) -> tuple[PreparedVolume, ...]:
    """Return the volumes to add for the sidecars. Of volumes with the same name, the Pod's wins, then the first
    set's. [SS-48]"""
    taken = {volume.get("name") for volume in present}
    new = []
    for content in contents:
        for volume in content.volumes:
            if volume.name not in taken:
                taken.add(volume.name)
                new.append(volume)
    return tuple(new)


def _secrets(
    present: Sequence[Mapping[str, Any]], contents: Iterable[PreparedContent]
) -> tuple[Mapping[str, Any], ...] | None:
    """Return the Pod's secrets, then the sets', each name once. [SS-52]"""
    merged: dict[Any, Mapping[str, Any]] = {}
    for secret in present:
        merged.setdefault(secret.get("name"), secret)
    for content in contents:
        for secret in content.image_pull_secrets:
            merged.setdefault(secret.get("name"), secret)
    # Comparing lengths is not enough: one dropped secret and one added secret would cancel out.
    return tuple(merged.values()) if list(merged.values()) != list(present) else None


def _records(
    pod: PodDraft,
    annotations: Mapping[str, str],
    contents: Sequence[PreparedContent],
    injecting: Sequence[PreparedContent],
    now: str,
) -> dict[str, str]:
    written = {}
    for key, entries in (
        (names.SIDECARSET_HASH, [content.hash_entry for content in injecting]),
        (names.SIDECARSET_HASH_WITHOUT_IMAGE, [content.hash_without_image_entry for content in injecting]),
    ):
        text = annotations.get(key)
        kept = kept_members(f"{pod.namespace}/{pod.name or pod.generate_name}", key, text) if text else _NOTHING
        written[key] = hash_record(kept, entries, now)
    present = annotations.get(names.SIDECARSET_INJECTED_LIST, "")
    written[names.SIDECARSET_INJECTED_LIST] = injected_list(present, [content.set_name for content in contents])
    hot = [name for content in injecting for name in content.hot]
    if hot:
        written.update(version_annotations(hot, annotations))
    return written


def _resources(
    pod: PodDraft, policy: ResourcesPolicy, contents: Sequence[PreparedContent], set_name: str, where: str
) -> Mapping[str, Any]:
    """Compute the resources from the Pod's own containers; containers of applied sets never count. [SS-60, SS-61]"""
    injected = frozenset[str]().union(*(content.all_names for content in contents))
    try:
        counted = targets(policy, pod.init_containers, pod.containers, injected)
    except ResourcesPolicyError as error:
        # OpenKruise's message names neither the Pod nor the set; the log and the event do.
        raise InjectionRefusedError(str(error), set_name) from error
    try:
        return evaluate(policy, counted)
    except ResourcesPolicyError as error:
        raise InjectionRefusedError(f"{pod.display}: {where}: {error}", set_name) from error


def _refuse_clashes(pod: PodDraft, contents: Sequence[PreparedContent]) -> None:
    """Refuse duplicate container names; the error names both sources. [SS-117]"""
    if len(contents) > 1:
        brought: dict[str, str] = {}
        for content in contents:
            for name in sorted(content.names | content.init_names):
                other = brought.setdefault(name, content.set_name)
                if other != content.set_name:
                    raise InjectionRefusedError(
                        f"{pod.display}: SidecarSets {other} and {content.set_name} both inject a container named "
                        f"{name}; rename it in one of them, or narrow a selector so that only one applies",
                        other,
                        content.set_name,
                    )
    for content in contents:
        for present, brought_names, kind in (
            (pod.init_containers, content.names, "init container"),
            (pod.containers, content.init_names, "container"),
        ):
            if not present or not brought_names:
                continue
            for container in present:
                if container["name"] in brought_names:
                    raise InjectionRefusedError(
                        f"{pod.display}: SidecarSet {content.set_name} injects {container['name']}, which is the name "
                        f"of the Pod's own {kind}; rename one of the two",
                        content.set_name,
                    )
