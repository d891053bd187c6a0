"""Liveness probes in an annotation of their Pod, as OpenKruise writes it (PW-18). Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import orjson
from pydantic import ValidationError

from app.api import names
from app.api.gocore import PROBE
from app.api.gojson import dumps_go, normalized
from app.api.podprobe import PodContainerProbe
from app.api.podprobe.validation import probe_errors
from app.kube.fielderrors import Path
from app.kube.memo import remembered
from app.kube.objects import Pod

_PROBE: Final = Path("livenessProbe")


def readable(container: str, probe: Mapping[str, Any]) -> PodContainerProbe | None:
    """PPM-56: the probe (JSON) of a container; None where the node agent cannot run it: by gRPC, or of another host."""
    try:
        read = PodContainerProbe.model_validate({"name": container, "containerName": container, "probe": probe})
    except ValidationError:
        return None
    return None if probe_errors(read.probe.to_dict(), _PROBE) else read


def annotation(probes: Iterable[tuple[str, Mapping[str, Any]]]) -> str:
    """The value of the annotation: each container's probe, in the order in which Go prints its fields."""
    return dumps_go([{"name": name, "livenessProbe": normalized(PROBE, probe)} for name, probe in probes])


def saved_probes(pod: Pod) -> tuple[PodContainerProbe, ...]:
    """The probes of a Pod; what cannot be read, or run, is left out, and each container has one at most."""
    text = pod.metadata.annotations.get(names.CONTAINER_PROBE_CONTEXT, "")
    return _read(text) if text else ()


@remembered(1024, longest=8192)
def _read(text: str) -> tuple[PodContainerProbe, ...]:
    try:
        entries = orjson.loads(text)
    except orjson.JSONDecodeError:
        return ()
    found: dict[str, PodContainerProbe] = {}
    for entry in entries if isinstance(entries, list) else ():
        name, probe = (entry.get("name"), entry.get("livenessProbe")) if isinstance(entry, dict) else (None, None)
        if not isinstance(name, str) or not name or not isinstance(probe, dict) or name in found:
            continue
        if (read := readable(name, probe)) is not None:
            found[name] = read
    return tuple(found.values())
