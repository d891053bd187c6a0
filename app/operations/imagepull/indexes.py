"""By what ImagePullJobs are found: the image, the namespace of their Pods."""

from __future__ import annotations

from typing import Final

from app.api.imagepull import ImagePullJob
from app.kube.images import FamiliarImage, familiar_image
from app.operations.imagepull.plan.jobs import is_active

BY_IMAGE: Final = "image"

BY_POD_SELECTOR: Final = "namespace of podSelector"


def image_of(job: ImagePullJob) -> FamiliarImage | None:
    """The job's image; None where admission was off and it cannot be read."""
    return familiar_image(job.spec.image)


def by_image(job: ImagePullJob) -> list[str]:
    """Index of active jobs: the repository."""
    image = image_of(job) if is_active(job) else None
    return [image.name] if image is not None else []


def by_pod_selector(job: ImagePullJob) -> list[str]:
    """Index of active jobs that choose nodes by Pods: their namespace."""
    return [job.metadata.namespace] if is_active(job) and job.spec.pod_selector is not None else []
