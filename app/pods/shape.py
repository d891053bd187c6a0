"""Whether a raw Pod has the shape admission relies on, so that a malformed one gets a clear refusal.

The API server decodes a Pod before it asks us, so this speaks to whoever calls the webhook by hand or keeps Pods in
files. Null where a list or a map may stand is fine: it means empty.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app.pods.draft import PodRefusedError

_STRING_MAPS = ("labels", "annotations")
_NAMES = ("name", "generateName", "namespace")
_CONTAINER_LISTS = ("containers", "initContainers")
#: Lists of objects, each with the field that tells its items apart.
_OBJECT_LISTS = (("volumes", "name"), ("imagePullSecrets", "name"), ("readinessGates", "conditionType"))
_LISTS_OF_CONTAINER = (("env", "name"), ("volumeMounts", "mountPath"), ("volumeDevices", "devicePath"))
_WORDS = {dict: "an object", list: "a list", str: "a string", bool: "a boolean", type(None): "null"}


def check_shape(pod: Mapping[str, Any]) -> None:
    """Raises PodRefusedError (400) naming the first field that does not hold what a Pod has there."""
    metadata = pod.get("metadata")
    if metadata is not None:
        _check_metadata(metadata)
    _check_type(pod.get("status"), dict, "status")
    spec = pod.get("spec")
    if spec is None:
        return
    _check_type(spec, dict, "spec")
    for field, key in _OBJECT_LISTS:
        value = spec.get(field)
        if value is not None:
            _check_objects(value, key, "spec", field)
    for field in _CONTAINER_LISTS:
        value = spec.get(field)
        if value is not None:
            _check_objects(value, "name", "spec", field)
            for index, container in enumerate(value):
                _check_container(container, field, index)


def _check_metadata(metadata: Any) -> None:
    _check_type(metadata, dict, "metadata")
    for field in _NAMES:
        _check_type(metadata.get(field), str, f"metadata.{field}")
    for field in _STRING_MAPS:
        value = metadata.get(field)
        if value is not None:
            _check_type(value, dict, f"metadata.{field}")
            for key, text in value.items():
                if type(text) is not str:
                    raise _mismatch(f"metadata.{field}[{key}]", "a string", text)
    owners = metadata.get("ownerReferences")
    if owners is not None:
        _check_objects(owners, "apiVersion", "metadata", "ownerReferences")


def _check_container(container: Mapping[str, Any], field: str, index: int) -> None:
    if container.get("name") is None:
        raise _mismatch(f"spec.{field}[{index}].name", "a string", None)
    for part, key in _LISTS_OF_CONTAINER:
        value = container.get(part)
        if value is not None:
            _check_objects(value, key, f"spec.{field}[{index}]", part)
    resources = container.get("resources")
    if resources:
        _check_type(resources, dict, f"spec.{field}[{index}].resources")
        for part in ("limits", "requests"):
            _check_type(resources.get(part), dict, f"spec.{field}[{index}].resources.{part}")


def _check_objects(value: Any, key: str, parent: str, field: str) -> None:
    """A list of objects whose ``key`` is a string where it is given."""
    if type(value) is not list:
        raise _mismatch(f"{parent}.{field}", "a list", value)
    for index, item in enumerate(value):
        if type(item) is not dict:
            raise _mismatch(f"{parent}.{field}[{index}]", "an object", item)
        text = item.get(key)
        if type(text) is not str and text is not None:
            raise _mismatch(f"{parent}.{field}[{index}].{key}", "a string", text)


def _check_type(value: Any, wanted: type, path: str) -> None:
    if value is not None and type(value) is not wanted:
        raise _mismatch(path, _WORDS[wanted], value)


def _mismatch(path: str, wanted: str, value: object) -> PodRefusedError:
    return PodRefusedError(f"Pod: {path}: expected {wanted}, got {_WORDS.get(type(value), 'a number')}", code=400)
