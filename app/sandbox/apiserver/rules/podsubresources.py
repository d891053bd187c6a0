"""What may be written of a Pod through its subresources: new ephemeral containers, other resources.

Source: Kubernetes 1.34, pkg/apis/core/validation: ValidatePodEphemeralContainersUpdate, ValidatePodResize.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

from app.kube.fielderrors import FieldError, Path, duplicate, forbidden, invalid, not_found
from app.kube.gotext import quote
from app.sandbox.apiserver.rules.pods import differences, quality_of_service

Json: TypeAlias = dict[str, Any]

_EPHEMERAL: Final = Path("spec").child("ephemeralContainers")
#: What has no meaning for a container that may come at any time.
_NOT_EPHEMERAL: Final = ("ports", "livenessProbe", "readinessProbe", "startupProbe", "lifecycle", "resizePolicy")


def ephemeral_errors(pod: Json, old: Json) -> list[FieldError]:
    """What is wrong with the ephemeral containers of a Pod: those that are there stay as they are."""
    spec = pod.get("spec") or {}
    others = [one.get("name") for key in ("containers", "initContainers") for one in spec.get(key) or ()]
    found: list[FieldError] = []
    names = list(others)
    for index, container in enumerate(spec.get("ephemeralContainers") or ()):
        at = _EPHEMERAL.index(index)
        if container.get("name") in names:
            found.append(duplicate(at.child("name"), container.get("name")))
        names.append(container.get("name"))
        target = container.get("targetContainerName")
        if target and target not in others:
            found.append(not_found(at.child("targetContainerName"), target))
        for field in _NOT_EPHEMERAL:
            if container.get(field):
                found.append(forbidden(at.child(field), "cannot be set for an Ephemeral Container"))
    given = {one.get("name"): one for one in spec.get("ephemeralContainers") or ()}
    for before in (old.get("spec") or {}).get("ephemeralContainers") or ():
        name = before.get("name")
        if name in given and given[name] != before:
            shown = "\n".join(differences(before, given[name], name))
            found.append(
                forbidden(_EPHEMERAL, f"existing ephemeral containers {quote(name)} may not be changed\n{shown}")
            )
    return found


def resize_errors(pod: Json, old: Json) -> list[FieldError]:
    """What a resize may not do beside what is wrong with any Pod."""
    before = quality_of_service(old["spec"])
    if quality_of_service(pod["spec"]) != before:
        return [invalid("spec", before, "Pod QOS Class may not change as a result of resizing")]
    return []
