"""Plans which sidecars to stop, and how. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

from app.api import names
from app.features.containerrecreate.kind import request_for
from app.features.containerrecreate.types import IGNORE
from app.kube.objects import ContainerStatus, ObjectMeta, PlainEnvVar, Pod, PodStatus, Struct, decoder
from app.pods.predicates import FINISHED


class JobContainer(Struct, frozen=True):
    """A container with its image and the env that marks it as a sidecar."""

    name: str = ""
    image: str = ""
    env: tuple[PlainEnvVar, ...] = ()


class JobPodSpec(Struct, frozen=True):
    """Relevant fields of a Pod spec."""

    node_name: str = ""
    restart_policy: str = ""
    containers: tuple[JobContainer, ...] = ()


class JobPod(Struct, frozen=True):
    """A Pod that may have sidecars."""

    metadata: ObjectMeta = ObjectMeta()
    spec: JobPodSpec = JobPodSpec()
    status: PodStatus = PodStatus()


decode_job_pod: Final = decoder(JobPod)


# When and how to stop the sidecars of a job's Pod. On an ordinary node, the node agent stops them as requested by a
# ContainerRecreateRequest. A virtual node has no agent, so each image is replaced with one that exits. Sidecars whose
# exit code must not count are stopped last, after the Pod's phase is set. [SS-111 … SS-115]

NEVER: Final = "Never"
ON_FAILURE: Final = "OnFailure"
SUCCEEDED: Final = "Succeeded"
FAILED: Final = "Failed"
TERMINATED_MESSAGE: Final = "Terminated by Sidecar Terminator"
_REQUEST_PREFIX: Final = "sidecar-termination-"
#: Name suffix of the request that stops the last sidecars. [SS-115]
_LAST_SUFFIX: Final = "-ignore-exit-code"


class Kind(Enum):
    """Kind of a container, according to its env."""

    MAIN = "main"
    SIDECAR = "sidecar"
    #: A sidecar whose exit code is ignored.
    IGNORED = "ignored"
    #: Marked only by KRUISE_TERMINATE_SIDECAR_WHEN_JOB_EXIT_WITH_IMAGE, which has no effect on ordinary nodes.
    BY_IMAGE = "by image"


@dataclass(frozen=True, slots=True)
class Sidecar:
    """A container as classified by its env. ``image`` stops it on a virtual node; "" if none is set."""

    kind: Kind
    image: str = ""


def sidecar(container: JobContainer) -> Sidecar:
    """Classify a container by its env. If a name is repeated, the last entry counts, as at run time. [SS-111]"""
    env = {entry.name: entry.value for entry in container.env}
    image = env.get(names.ENV_TERMINATE_SIDECAR_WITH_IMAGE, "")
    if env.get(names.ENV_TERMINATE_SIDECAR, "").lower() == "true":
        ignored = env.get(names.ENV_TERMINATE_SIDECAR_IGNORE_EXIT_CODE, "").lower() == "true"
        return Sidecar(Kind.IGNORED if ignored else Kind.SIDECAR, image)
    return Sidecar(Kind.BY_IMAGE if image else Kind.MAIN, image)


def has_sidecars(pod: JobPod) -> bool:
    """Return whether the Pod has sidecars. [SS-111]"""
    return any(sidecar(one).kind is not Kind.MAIN for one in pod.spec.containers)


def may_be_due(pod: Pod) -> bool:
    """Return whether a cached Pod may need action: some of its containers have ended, others have not. Cached Pods have
    no env, so it is unknown which containers are sidecars. [SS-112]"""
    if pod.metadata.deletion_timestamp is not None or not _is_job(pod.spec.restart_policy, pod.status):
        return False
    statuses = pod.status.container_statuses
    if len(statuses) != len(pod.spec.containers):
        return False
    over = [one for one in statuses if _is_over(one, pod.spec.restart_policy)]
    return bool(over) and any(one.state.terminated is None for one in statuses)


def _is_job(restart_policy: str, status: PodStatus) -> bool:
    if status.phase in FINISHED and not is_terminated_by_us(status):
        return False  # the kubelet stops it
    return restart_policy in (NEVER, ON_FAILURE) and status.phase not in ("", "Pending")


def _is_over(status: ContainerStatus, restart_policy: str) -> bool:
    """Return whether the container has ended and will not restart."""
    terminated = status.state.terminated
    return terminated is not None and (restart_policy == NEVER or terminated.exit_code == 0)


def is_terminated_by_us(status: PodStatus) -> bool:
    """Return whether this controller set the Pod's phase."""
    return any(one.type == names.SIDECAR_TERMINATED_CONDITION and one.status == "True" for one in status.conditions)


@dataclass(frozen=True, slots=True)
class Step:
    """The actions to take now, in the order of the fields; empty if there are none. Containers are sorted by name."""

    #: The image that stops each sidecar. [SS-114]
    images: dict[str, str] = field(default_factory=dict)
    #: The phase to set before the last sidecars are stopped. [SS-115]
    phase: str = ""
    #: The containers to stop, and the name of the request that does so. [SS-113]
    stop: tuple[str, ...] = ()
    request: str = ""
    #: Sidecars whose env has no effect on this type of node.
    unreachable: tuple[str, ...] = ()


NOTHING: Final = Step()


def plan(pod: JobPod, *, virtual: bool) -> Step:
    """Return the actions for the Pod. ``virtual``: whether its node is virtual."""
    if pod.metadata.deletion_timestamp is not None or not _is_job(pod.spec.restart_policy, pod.status):
        return NOTHING
    statuses = {one.name: one for one in pod.status.container_statuses}
    if statuses.keys() != {one.name for one in pod.spec.containers}:
        return NOTHING
    sidecars = {one.name: found for one in pod.spec.containers if (found := sidecar(one)).kind is not Kind.MAIN}
    left = [name for name in sorted(sidecars) if statuses[name].state.terminated is None]
    main = [status for name, status in statuses.items() if name not in sidecars]
    if not left or not main or not all(_is_over(status, pod.spec.restart_policy) for status in main):
        return NOTHING
    if virtual:
        return _on_virtual_node(pod, sidecars, left)
    return _on_node(pod, sidecars, left, main)


def _on_virtual_node(pod: JobPod, sidecars: dict[str, Sidecar], left: list[str]) -> Step:
    """Return the actions on a virtual node. [SS-114]"""
    runs = {one.name: one.image for one in pod.spec.containers}
    images = {name: sidecars[name].image for name in left if sidecars[name].image not in ("", runs[name])}
    return Step(images=images, unreachable=tuple(name for name in left if not sidecars[name].image))


def _on_node(pod: JobPod, sidecars: dict[str, Sidecar], left: list[str], main: Iterable[ContainerStatus]) -> Step:
    """Return the actions on an ordinary node. [SS-113, SS-115]"""
    by_kind = {kind: tuple(name for name in left if sidecars[name].kind is kind) for kind in Kind}
    unreachable, ordinary, ignored = by_kind[Kind.BY_IMAGE], by_kind[Kind.SIDECAR], by_kind[Kind.IGNORED]
    request = f"{_REQUEST_PREFIX}{pod.metadata.uid}"
    if ordinary:
        return Step(stop=ordinary, request=request, unreachable=unreachable)
    if unreachable or not ignored:
        return Step(unreachable=unreachable)
    phase = ""
    if pod.status.phase not in FINISHED:
        codes = [one.state.terminated.exit_code for one in main if one.state.terminated is not None]
        phase = SUCCEEDED if not any(codes) else FAILED
    return Step(phase=phase, stop=ignored, request=request + _LAST_SUFFIX)


def recreate_request(pod: JobPod, step: Step) -> dict[str, Any]:
    """Return the request that makes the node agent stop the sidecars. [SS-113]"""
    strategy = {"forceRecreate": True, "failurePolicy": IGNORE}
    return request_for(pod.metadata, step.request, step.stop, strategy=strategy)
