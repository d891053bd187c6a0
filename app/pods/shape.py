"""Whether a raw Pod has the shape admission relies on, so that a malformed one gets a clear refusal.

The API server decodes a Pod before it asks us, so this speaks to whoever calls the webhook by hand or keeps Pods in
files. The structs name what the steps of Pod admission read; null where a list or a map may stand means empty.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from app.pods.draft import PodRefusedError


class _Part(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """A part of a Pod; fields that are not named may hold anything."""


class _Named(_Part, frozen=True):
    name: str | None = None


class _Mount(_Part, frozen=True):
    mount_path: str | None = None


class _Device(_Part, frozen=True):
    device_path: str | None = None


class _Gate(_Part, frozen=True):
    condition_type: str | None = None


class _Owner(_Part, frozen=True):
    api_version: str | None = None


class _Resources(_Part, frozen=True):
    limits: dict[str, Any] | None = None
    requests: dict[str, Any] | None = None


class _Container(_Part, frozen=True):
    name: str
    env: list[_Named] | None = None
    volume_mounts: list[_Mount] | None = None
    volume_devices: list[_Device] | None = None
    resources: _Resources | None = None


class _Metadata(_Part, frozen=True):
    name: str | None = None
    generate_name: str | None = None
    namespace: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[_Owner] | None = None


class _Spec(_Part, frozen=True):
    containers: list[_Container] | None = None
    init_containers: list[_Container] | None = None
    volumes: list[_Named] | None = None
    image_pull_secrets: list[_Named] | None = None
    readiness_gates: list[_Gate] | None = None


class _Pod(_Part, frozen=True):
    metadata: _Metadata | None = None
    spec: _Spec | None = None
    status: dict[str, Any] | None = None


def check_shape(pod: Mapping[str, Any]) -> None:
    """Raises PodRefusedError (400) naming the first field that does not hold what a Pod has there."""
    try:
        msgspec.convert(pod, _Pod)
    except msgspec.ValidationError as error:
        # "Expected `str`, got `int` - at `$.metadata.name`"
        problem, _, path = str(error).replace("`", "").partition(" - at $")
        raise PodRefusedError(f"Pod: {path.lstrip('.')}: {problem[:1].lower()}{problem[1:]}", code=400) from error
