"""Whether a raw Pod has the shape admission relies on, so that a malformed one gets a clear refusal.

The API server decodes a Pod before it asks us, so this speaks to whoever calls the webhook by hand or keeps Pods in
files. The structs name what the steps of Pod admission read; null where a list or a map may stand means empty.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, TypeAlias

import msgspec

from app.kube.gotext import shortened
from app.pods.draft import PodRefusedError


class _Part(msgspec.Struct, frozen=True, rename="camel", gc=False):
    """A part of a Pod; fields that are not named may hold anything."""


class _Named(_Part, frozen=True):
    name: str | None = None


class _ValueFrom(_Part, frozen=True):
    field_ref: dict[str, Any] | None = None


class _Env(_Named, frozen=True):
    value: str | None = None
    value_from: _ValueFrom | None = None


class _Mount(_Part, frozen=True):
    mount_path: str | None = None
    sub_path_expr: str | None = None


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
    env: list[_Env] | None = None
    volume_mounts: list[_Mount] | None = None
    volume_devices: list[_Device] | None = None
    resources: _Resources | None = None


class _Manager(_Part, frozen=True):
    manager: str | None = None


class _Metadata(_Part, frozen=True):
    name: str | None = None
    generate_name: str | None = None
    namespace: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[_Owner] | None = None
    managed_fields: list[_Manager] | None = None


#: The status of that many containers is larger than what etcd stores: a Pod with more could never run.
MAX_CONTAINERS: Final = 10_000
_Containers: TypeAlias = Annotated[list[_Container], msgspec.Meta(max_length=MAX_CONTAINERS)]


class _NodeAffinity(_Part, frozen=True):
    preferred_during_scheduling_ignored_during_execution: list[dict[str, Any]] | None = None
    required_during_scheduling_ignored_during_execution: dict[str, Any] | None = None


class _Affinity(_Part, frozen=True):
    node_affinity: _NodeAffinity | None = None


class _Spec(_Part, frozen=True):
    node_name: str | None = None
    node_selector: dict[str, str] | None = None
    affinity: _Affinity | None = None
    containers: _Containers | None = None
    init_containers: _Containers | None = None
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
        field = _with_key(pod, path.lstrip("."))
        raise PodRefusedError(f"Pod: {field}: {problem[:1].lower()}{problem[1:]}", code=400) from error


def _with_key(pod: Mapping[str, Any], path: str) -> str:
    """The path with the key of the wrong label or annotation, which msgspec leaves out."""
    holder = path.removesuffix("[...]")
    if holder not in ("metadata.labels", "metadata.annotations") or holder == path:
        return path
    entries = pod["metadata"][holder.removeprefix("metadata.")]
    wrong = next((key for key, value in entries.items() if not isinstance(value, str)), "")
    return f"{holder}[{shortened(wrong)}]"
