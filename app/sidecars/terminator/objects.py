"""A Pod as the terminator reads it: with the plain env of its containers, which the cache of Pods does not keep."""

from __future__ import annotations

from typing import Final

from app.kube.objects import ObjectMeta, PlainEnvVar, PodStatus, Struct, decoder


class JobContainer(Struct, frozen=True):
    """A container: what it runs, and the env that says what it is."""

    name: str = ""
    image: str = ""
    env: tuple[PlainEnvVar, ...] = ()


class JobPodSpec(Struct, frozen=True):
    """What was asked of a Pod."""

    node_name: str = ""
    restart_policy: str = ""
    containers: tuple[JobContainer, ...] = ()


class JobPod(Struct, frozen=True):
    """A Pod that may have sidecars."""

    metadata: ObjectMeta = ObjectMeta()
    spec: JobPodSpec = JobPodSpec()
    status: PodStatus = PodStatus()


decode_job_pod: Final = decoder(JobPod)
