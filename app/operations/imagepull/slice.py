"""The slice of image pulling."""

from __future__ import annotations

from typing import Final

from app.api.imagepull import IMAGE_LIST_PULL_JOB, IMAGE_PULL_JOB, NODE_IMAGE
from app.slices import Slice

SLICE: Final = Slice(name="imagepull", kinds=(IMAGE_PULL_JOB, IMAGE_LIST_PULL_JOB, NODE_IMAGE))
