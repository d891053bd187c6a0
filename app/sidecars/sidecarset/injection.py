"""What SidecarSets do to a new Pod: ``plan_injection`` decides, ``inject`` writes the decision into the draft.

Pure: the sets are chosen, the time is given. Rules SS-41 … SS-59, in the order SS-41 gives.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from app.api import names
from app.pods.draft import Container, ContainerList, PodDraft
from app.sidecars.sidecarset.annotations import hash_record, injected_list, kept_members
from app.sidecars.sidecarset.hot_upgrade import version_annotations
from app.sidecars.sidecarset.pod_metadata import MetadataPatchError, patched_annotations
from app.sidecars.sidecarset.prepared import PreparedContent, PreparedVolume
from app.sidecars.sidecarset.prepared_containers import SidecarContainer
from app.sidecars.sidecarset.refusal import InjectionRefusedError
from app.sidecars.sidecarset.resources_policy import ResourcesPolicy, ResourcesPolicyError, evaluate, targets
from app.sidecars.sidecarset.sharing import SharingSource, rendered

_NOTHING: Mapping[str, str] = {}


# Named tuples, not dataclasses: both are made for every Pod, and take a third of the time to make.


class Placement(NamedTuple):
    """A sidecar and its place in the list: it replaces what is there, or is inserted before it."""

    container: SidecarContainer
    position: int
    replaces: bool


class InjectionPlan(NamedTuple):
    """Everything the applied sets change in one Pod. Placements are to be carried out in order."""

    #: SS-53: annotations from patchPodMetadata and the sets that have one; these alone if no set has a sidecar.
    metadata: Mapping[str, str]
    patching: tuple[str, ...] = ()
    init_containers: tuple[Placement, ...] = ()
    containers: tuple[Placement, ...] = ()
    volumes: tuple[PreparedVolume, ...] = ()
    #: All imagePullSecrets of the Pod, or None if they stay as they are.
    image_pull_secrets: tuple[Mapping[str, Any], ...] | None = None
    #: SS-56, SS-57, and SS-79 if ``hot``: some sidecar is hot-upgradable.
    annotations: Mapping[str, str] | None = None
    hot: bool = False


def plan_injection(
    pod: PodDraft, contents: Sequence[PreparedContent], now: str, *, sort_by_name: bool = False
) -> InjectionPlan:
    """What these contents, one per applied set and in the sets' order, do to ``pod``.

    ``now`` is the time the hash annotations get (RFC 3339). ``sort_by_name`` is feature gate
    EnableSortSidecarContainerByName (SS-43). Raises PodRefusedError; InjectionRefusedError where a set is the cause.
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
    # SS-44: always by name; SS-43: only with the gate. Sorting is stable.
    init_containers.sort(key=_name)
    if sort_by_name:
        containers.sort(key=_name)
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


def _name(container: SidecarContainer) -> str:
    return container.name


def _sidecars(
    pod: PodDraft, annotations: Mapping[str, str], contents: Sequence[PreparedContent]
) -> tuple[list[SidecarContainer], list[SidecarContainer]]:
    """The init containers and containers of all sets, in set order and then spec order, each as this Pod gets it."""
    source: SharingSource | None = None
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
                if sidecar.resources is not None:
                    where = f"SidecarSet {content.set_name}: container {sidecar.name}"
                    body["resources"] = _resources(pod, sidecar.resources, contents, content.set_name, where)
                out += sidecar.containers(body)
    return init_containers, containers


def _placements(present: Sequence[Container], sidecars: Sequence[SidecarContainer]) -> tuple[Placement, ...]:
    """SS-42: a sidecar the list has already takes that position; the others stand in front of the list or behind it."""
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
    """SS-48: volumes the sidecars use; of equal names the Pod's wins, then the first set's."""
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
    """SS-52: the Pod's, then the sets', each name once."""
    merged: dict[Any, Mapping[str, Any]] = {}
    for secret in present:
        merged.setdefault(secret.get("name"), secret)
    for content in contents:
        for secret in content.image_pull_secrets:
            merged.setdefault(secret.get("name"), secret)
    # Not by their number: one that is dropped and one that is added would cancel out.
    return tuple(merged.values()) if list(merged.values()) != list(present) else None


def _records(
    pod: PodDraft,
    annotations: Mapping[str, str],
    contents: Sequence[PreparedContent],
    injecting: Sequence[PreparedContent],
    now: str,
) -> dict[str, str]:
    """The annotations by which the Pod remembers its sets."""
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
    """SS-60, SS-61: worked out from the Pod's own containers; those of any applied set never count."""
    injected = frozenset[str]().union(*(content.all_names for content in contents))
    try:
        counted = targets(policy, pod.init_containers, pod.containers, injected)
    except ResourcesPolicyError as error:
        # To the letter what OpenKruise says; log and event name the Pod and the set.
        raise InjectionRefusedError(str(error), set_name) from error
    try:
        return evaluate(policy, counted)
    except ResourcesPolicyError as error:
        raise InjectionRefusedError(f"{pod.display}: {where}: {error}", set_name) from error


def _refuse_clashes(pod: PodDraft, contents: Sequence[PreparedContent]) -> None:
    """SS-117: a container name can stand in a Pod once; say who brings it twice, not only that it is there twice."""
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
