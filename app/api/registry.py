"""All kinds there are. What concerns every kind (CRDs, conversion, endpoints, reference pages) starts from here."""

from __future__ import annotations

from typing import Final

from app.api.cloneset import CLONE_SET
from app.api.containerrecreate import CONTAINER_RECREATE_REQUEST
from app.api.imagepull import IMAGE_LIST_PULL_JOB, IMAGE_PULL_JOB, NODE_IMAGE
from app.api.kind import KindDefinition
from app.api.podprobe import NODE_POD_PROBE, POD_PROBE_MARKER
from app.api.podunavailablebudget import POD_UNAVAILABLE_BUDGET
from app.api.sidecarset import SIDECAR_SET

KINDS: Final[tuple[KindDefinition, ...]] = (
    CLONE_SET,
    POD_UNAVAILABLE_BUDGET,
    SIDECAR_SET,
    IMAGE_PULL_JOB,
    IMAGE_LIST_PULL_JOB,
    NODE_IMAGE,
    CONTAINER_RECREATE_REQUEST,
    POD_PROBE_MARKER,
    NODE_POD_PROBE,
)


def find_kind(api_version: str, kind: str) -> KindDefinition | None:
    """The kind of this name in the group of ``api_version``, whatever the version."""
    group = api_version.rpartition("/")[0]
    return next((known for known in KINDS if known.kind == kind and known.group == group), None)
