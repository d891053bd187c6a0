"""Validation of volumes: their names, and the sources that sidecars commonly use. Rare sources are left to the API
server."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

from app.api.core.env import (
    ENV_FIELDS,
    backstep_errors,
    field_ref_errors,
    local_file_errors,
    mode_errors,
    resource_ref_errors,
)
from app.api.gocore import VOLUME_SOURCES
from app.api.gojson import GoTypeError, go_value
from app.kube.fielderrors import FieldError, Path, duplicate, forbidden, invalid, not_supported, required, type_invalid
from app.kube.quantities import parse
from app.kube.validation import is_dns1123_label, is_dns1123_subdomain

Json = Mapping[str, Any]
_Check: TypeAlias = Callable[[Json, Path], Iterable[FieldError]]

_HOST_PATH_TYPES: Final = (
    "",
    "BlockDevice",
    "CharDevice",
    "Directory",
    "DirectoryOrCreate",
    "File",
    "FileOrCreate",
    "Socket",
)
_FILE_FIELDS: Final = ("metadata.annotations", "metadata.labels", *ENV_FIELDS[:3])
_LONGEST_TOKEN: Final = 1 << 32


#: The validated sources, in the order in which Kubernetes validates them.
_SOURCES: Final = (
    "emptyDir",
    "hostPath",
    "secret",
    "nfs",
    "persistentVolumeClaim",
    "downwardAPI",
    "configMap",
    "projected",
    "csi",
)


def volume_errors(volumes: Sequence[Json], path: Path) -> tuple[list[FieldError], dict[str, Json]]:
    """Return the errors in the (defaulted) volumes, and the valid volumes by name."""
    errors: list[FieldError] = []
    valid: dict[str, Json] = {}
    for index, volume in enumerate(volumes):
        at = path.index(index)
        found = list(_source_errors(volume, at))
        name = volume.get("name")
        if not isinstance(name, str | None):
            found.append(type_invalid(at.child("name"), "", "expected string"))
        elif not name:
            found.append(required(at.child("name")))
        else:
            found += [invalid(at.child("name"), name, message) for message in is_dns1123_label(name)]
            if name in valid:
                found.append(duplicate(at.child("name"), name))
        errors += found
        if not found:
            valid[str(name)] = volume
    return errors, valid


def _source_errors(volume: Json, path: Path) -> Iterator[FieldError]:
    # Known sources come first and in Kubernetes' order, which decides which of several sources is reported.
    given = [key for key in _SOURCES if volume.get(key) is not None]
    given += [key for key, value in volume.items() if value is not None and key != "name" and key not in _SOURCES]
    for position, kind in enumerate(given):
        if position:
            yield forbidden(path.child(kind), "may not specify more than 1 volume type")
        elif kind in _SOURCES:
            try:
                source = go_value(VOLUME_SOURCES[kind], volume[kind], str(path.child(kind)))
            except GoTypeError as error:
                field, _, reason = str(error).partition(": ")
                yield type_invalid(field, "", reason)
            else:
                yield from _CHECKS[kind](source, path.child(kind))


def _empty_dir(source: Json, path: Path) -> list[FieldError]:
    limit = source.get("sizeLimit")
    if limit is not None and parse(limit).sign < 0:
        return [forbidden(path.child("sizeLimit"), "SizeLimit field must be a valid resource quantity")]
    return []


def _host_path(source: Json, path: Path) -> Iterator[FieldError]:
    if not source["path"]:
        yield required(path.child("path"))
        return
    yield from backstep_errors(source["path"], path.child("path"))
    if source.get("type", "") not in _HOST_PATH_TYPES:
        yield not_supported(path.child("type"), source["type"], _HOST_PATH_TYPES)


def _keyed(name: str) -> _Check:
    """Return a validator for a Secret or ConfigMap volume. ``name`` is the field that holds the object's name."""

    def errors_of(source: Json, path: Path) -> Iterator[FieldError]:
        if not source.get(name):
            yield required(path.child(name))
        yield from mode_errors(source.get("defaultMode"), path.child("defaultMode"))
        for index, item in enumerate(source.get("items", ())):
            at = path.child("items").index(index)
            yield from (required(at.child(key)) for key in ("key", "path") if not item[key])
            yield from local_file_errors(item["path"], at.child("path"))
            yield from mode_errors(item.get("mode"), at.child("mode"))

    return errors_of


def _nfs(source: Json, path: Path) -> Iterator[FieldError]:
    yield from (required(path.child(key)) for key in ("server", "path") if not source[key])
    if not source["path"].startswith("/"):
        yield invalid(path.child("path"), source["path"], "must be an absolute path")


def _claim(source: Json, path: Path) -> list[FieldError]:
    return [] if source["claimName"] else [required(path.child("claimName"))]


def _csi(source: Json, path: Path) -> Iterator[FieldError]:
    driver, at = source["driver"], path.child("driver")
    if not driver:
        yield required(at)
    yield from (invalid(at, driver, message) for message in is_dns1123_subdomain(driver.lower()))


def _downward_api(source: Json, path: Path) -> Iterator[FieldError]:
    yield from mode_errors(source.get("defaultMode"), path.child("defaultMode"))
    for item in source.get("items", ()):
        # Kubernetes reports errors in items at the path of the source, without an index.
        if not item["path"]:
            yield required(path.child("path"))
        yield from local_file_errors(item["path"], path.child("path"))
        field, resource = item.get("fieldRef"), item.get("resourceFieldRef")
        if field is not None:
            yield from field_ref_errors(field, _FILE_FIELDS, path.child("fieldRef"))
            if resource is not None:
                yield invalid(path, "resource", "fieldRef and resourceFieldRef can not be specified simultaneously")
        elif resource is not None:
            yield from resource_ref_errors(resource, path.child("resourceFieldRef"), of_volume=True)
        else:
            yield required(path, "one of fieldRef and resourceFieldRef is required")
        yield from mode_errors(item.get("mode"), path.child("mode"))


def _projected(source: Json, path: Path) -> Iterator[FieldError]:
    yield from mode_errors(source.get("defaultMode"), path.child("defaultMode"))
    taken: set[str] = set()
    for index, projection in enumerate(source.get("sources") or ()):
        at = path.child("sources").index(index)
        for kind in projection:
            if kind in _PROJECTIONS:
                yield from _PROJECTIONS[kind](projection[kind], at.child(kind))
            for item in projection[kind].get("items") or ():
                if item["path"] in taken:
                    shown = item["path"] if kind == "downwardAPI" else projection[kind].get("name", "")
                    yield invalid(path, shown, "conflicting duplicate paths")
                taken.add(item["path"])
        if len(projection) > 1:
            yield forbidden(at, "may not specify more than 1 volume type per source")


def _token(source: Json, path: Path) -> Iterator[FieldError]:
    seconds, at = source["expirationSeconds"], path.child("expirationSeconds")
    if seconds < 600:
        yield invalid(at, seconds, "may not specify a duration less than 10 minutes")
    if seconds > _LONGEST_TOKEN:
        yield invalid(at, seconds, "may not specify a duration larger than 2^32 seconds")
    # Kubernetes reports errors in this path at the projected volume, two levels up.
    projected = Path(str(path).rpartition(".sources[")[0])
    if source["path"]:
        yield from local_file_errors(source["path"], projected.child("path"))
    else:
        yield required(projected.child("path"))


_PROJECTIONS: Final[Mapping[str, _Check]] = {
    "secret": _keyed("name"),
    "configMap": _keyed("name"),
    "downwardAPI": _downward_api,
    "serviceAccountToken": _token,
}
_CHECKS: Final[Mapping[str, _Check]] = {
    "emptyDir": _empty_dir,
    "hostPath": _host_path,
    "secret": _keyed("secretName"),
    "nfs": _nfs,
    "persistentVolumeClaim": _claim,
    "downwardAPI": _downward_api,
    "configMap": _keyed("name"),
    "projected": _projected,
    "csi": _csi,
}
