"""What is admitted in a SidecarSet and will have no effect, for warnings to whoever wrote it (SS-135). Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from app.api.sidecarset import SidecarContainer, SidecarSet
from app.api.sidecarset.types import NOT_UPDATE
from app.kube.fielderrors import Path
from app.kube.gotext import quote
from app.kube.intorpercent import is_more_than_all
from app.sidecars.sidecarset.plan.obstacles import obstacle
from app.sidecars.sidecarset.validation import SPEC

#: What counts for no hash: Pods that run are not even looked at for it.
_ONLY_FOR_NEW_PODS = ("initContainers", "volumes", "imagePullSecrets", "patchPodMetadata")
_ENDING = ("Never", "OnFailure")


def without_effect(sidecar_set: SidecarSet, older: SidecarSet | None) -> tuple[str, ...]:
    """A line for each field that does nothing; ``older``: what is stored, on an update."""
    spec = sidecar_set.spec
    return (
        *_of_containers(spec.init_containers or (), SPEC.child("initContainers")),
        *_of_containers(spec.containers or (), SPEC.child("containers")),
        *_restart_policies(spec.init_containers or ()),
        *_empty_images(spec.containers or ()),
        *_partition(spec.update_strategy.partition),
        *(_of_change(sidecar_set, older) if older is not None else ()),
    )


def _of_containers(containers: Sequence[SidecarContainer], path: Path) -> Iterator[str]:
    for index, container in enumerate(containers):
        for number, entry in enumerate(container.transfer_env or ()):
            at = path.index(index).child("transferEnv").index(number)
            source = entry.source_container_name_from
            if not entry.source_container_name and (source is None or source.field_ref is None):
                yield f"{at}: names no source container, nothing is copied; set sourceContainerName"
            elif not entry.env_name and not entry.env_names:
                yield f"{at}: names no variable, nothing is copied; set envName or envNames"


def _restart_policies(containers: Sequence[SidecarContainer]) -> Iterator[str]:
    for index, container in enumerate(containers):
        policy = container.core.get("restartPolicy")
        if policy in _ENDING:
            at = SPEC.child("initContainers").index(index).child("restartPolicy")
            yield f"{at}: {quote(str(policy))} makes no sidecar of it: it is injected, and runs before the others only"


def _empty_images(containers: Sequence[SidecarContainer]) -> Iterator[str]:
    for index, container in enumerate(containers):
        if container.hot and container.image == container.upgrade_strategy.hot_upgrade_empty_image:
            at = SPEC.child("containers").index(index).child("image")
            yield f"{at}: is hotUpgradeEmptyImage: no running Pod is upgraded to it"


def _partition(partition: object) -> Iterator[str]:
    if is_more_than_all(partition):
        at = SPEC.child("updateStrategy", "partition")
        yield f"{at}: {quote(str(partition))} keeps all Pods at the old revision, as 100% does"


def _of_change(sidecar_set: SidecarSet, older: SidecarSet) -> Iterator[str]:
    if sidecar_set.spec.update_strategy.type == NOT_UPDATE:
        return
    before, now = older.spec.to_dict(), sidecar_set.spec.to_dict()
    field = obstacle(before, now)
    if field:
        yield f"{field}: no running Pod can take this change in place, only new Pods get it"
        return
    changed = [one for one in _ONLY_FOR_NEW_PODS if (before.get(one) or None) != (now.get(one) or None)]
    images = [(before.get("containers") or []), (now.get("containers") or [])]
    if changed and images[0] == images[1]:
        fields = ", ".join(str(SPEC.child(one)) for one in changed)
        yield f"{fields}: running Pods are not updated for this change, only new Pods get it"
