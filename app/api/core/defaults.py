"""Defaults of the core types inside our kinds, as OpenKruise writes them.

Hashes and revisions include the defaults of containers and templates (SS-6, SS-7, CS-16), so an additional or missing
default would create a new revision. An API server adds more defaults, such as serviceAccount.
The functions change the dict they are given, and leave values of the wrong type to validation.

Source: Kubernetes 1.34, pkg/apis/core/v1/defaults.go.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from app.api.gojson import normalized
from app.api.gopod import POD_TEMPLATE
from app.kube.images import parse_image
from app.kube.jsonvalues import as_object, fill, json_copy, object_at, objects, part
from app.kube.patches import same
from app.kube.quantities import QuantityError, parse

_MILLI: Final = -3
_FILE_MODE: Final = 0o644
_TOKEN_SECONDS: Final = 3600
_GRACE_PERIOD_SECONDS: Final = 30
_PROBES: Final = ("livenessProbe", "readinessProbe", "startupProbe")
_PROBE_NUMBERS: Final[Mapping[str, int]] = {
    "timeoutSeconds": 1,
    "periodSeconds": 10,
    "successThreshold": 1,
    "failureThreshold": 3,
}
#: Defaults of volume sources that an API server writes but OpenKruise does not.
_VOLUME_FIELDS: Final[Mapping[str, Mapping[str, Any]]] = {
    "iscsi": {"iscsiInterface": "default"},
    "rbd": {"pool": "rbd", "user": "admin", "keyring": "/etc/ceph/keyring"},
    "azureDisk": {"cachingMode": "ReadWrite", "kind": "Shared", "fsType": "ext4", "readOnly": False},
    "scaleIO": {"storageMode": "ThinProvisioned", "fsType": "xfs"},
}


def default_pod_template(template: dict[str, Any], *, host_ports: bool = False) -> None:
    """Fill in the defaults of a Pod template. [CS-16]

    With ``host_ports`` and hostNetwork, a missing hostPort becomes the containerPort. [CS-18] A missing imagePullPolicy
    becomes Always, whatever the tag, except in init containers, where it stays missing.
    """
    spec = part(template, "spec")
    if spec is None:
        return
    _fill(spec, {"restartPolicy": "Always", "dnsPolicy": "ClusterFirst", "schedulerName": "default-scheduler"})
    fill(spec, {"securityContext": {}, "terminationGracePeriodSeconds": _GRACE_PERIOD_SECONDS})
    for volume in objects(spec.get("volumes")):
        default_volume(volume)
    for name in ("initContainers", "containers", "ephemeralContainers"):
        for container in objects(spec.get(name)):
            if name != "initContainers":
                _fill(container, {"imagePullPolicy": "Always"})
            _default_container_fields(container, startup_probe=True)
            if host_ports and spec.get("hostNetwork") is True:
                for port in objects(container.get("ports")):
                    _fill(port, {"hostPort": port.get("containerPort")})
    round_up_to_milli(spec.get("overhead"))


def completed_template(template: dict[str, Any], former: Any, *, host_ports: bool = False) -> dict[str, Any]:
    """Return the Pod template with its defaults, or ``former``, the stored one, if the two differ only in defaults.

    Reapplied manifests omit defaults. Which defaults were stored depends on the program and the release
    that stored the object; such differences must not create a revision. [CS-16]
    """
    if isinstance(former, dict) and same(_with_every_default(template, former), _with_every_default(former, template)):
        kept: dict[str, Any] = json_copy(former)
        return kept
    default_pod_template(template, host_ports=host_ports)
    return template


def _with_every_default(template: Mapping[str, Any], other: Mapping[str, Any]) -> Any:
    """Return a copy of the template with every default that OpenKruise, Kubernetes or an earlier release may have
    written."""
    completed = json_copy(dict(template))
    spec = completed.get("spec")
    if isinstance(spec, dict):
        for volume in objects(spec.get("volumes")):
            default_volume(volume, every=True)
        others = list(objects((object_at(other, "spec") or {}).get("initContainers")))
        for index, container in enumerate(objects(spec.get("initContainers"))):
            if not container.get("imagePullPolicy"):
                given = others[index].get("imagePullPolicy") if index < len(others) else None
                default = default_pull_policy(container.get("image"))
                container["imagePullPolicy"] = "Always" if given == "Always" else default
        for container in (one for field in ("initContainers", "containers") for one in objects(spec.get(field))):
            for probe in (object_at(container, field) for field in _PROBES):
                if (action := object_at(probe, "grpc")) is not None:
                    fill(action, {"service": ""})
    default_pod_template(completed, host_ports=True)
    return normalized(POD_TEMPLATE, completed, "spec.template")


def default_claim_template(claim: dict[str, Any]) -> None:
    """Fill in the defaults of a claim template as OpenKruise does: volumeMode stays unset. [CS-17]"""
    status = part(claim, "status")
    if status is not None:
        _fill(status, {"phase": "Pending"})
        round_up_to_milli(status.get("capacity"))
    _round_up(as_object(claim.get("spec")).get("resources"))


def default_container(container: dict[str, Any], *, startup_probe: bool = False) -> None:
    """Fill in the defaults of a container. [SS-6]

    With ``startup_probe``, the startup probe also gets defaults; in a SidecarSet, OpenKruise hashes it without them.
    """
    if not container.get("imagePullPolicy"):
        container["imagePullPolicy"] = default_pull_policy(container.get("image"))
    _default_container_fields(container, startup_probe=startup_probe)


def _default_container_fields(container: dict[str, Any], *, startup_probe: bool) -> None:
    _fill(container, {"terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File"})
    for port in objects(container.get("ports")):
        _fill(port, {"protocol": "TCP"})
    for env in objects(container.get("env")):
        default_field_ref(object_at(object_at(env, "valueFrom"), "fieldRef"))
    _round_up(container.get("resources"))
    for probe in (object_at(container, name) for name in (_PROBES if startup_probe else _PROBES[:2])):
        if probe is not None:
            _fill(probe, _PROBE_NUMBERS)
            _default_http_get(probe)
    lifecycle = object_at(container, "lifecycle")
    for hook in ("postStart", "preStop"):
        _default_http_get(object_at(lifecycle, hook))


def default_pull_policy(image: Any) -> str:
    """Return ``Always`` for the tag latest or an image without a tag or digest, else ``IfNotPresent``."""
    # Images reported by nodes may have a prefix such as docker://. In a spec, such a prefix is invalid.
    reference = parse_image(image) if isinstance(image, str) and "://" not in image else None
    latest = reference is not None and (reference.tag == "latest" or not (reference.tag or reference.digest))
    return "Always" if latest else "IfNotPresent"


def default_field_ref(reference: dict[str, Any] | None) -> None:
    """Default the apiVersion of an ObjectFieldSelector to v1."""
    if reference is not None:
        _fill(reference, {"apiVersion": "v1"})


def _round_up(resources: Any) -> None:
    for name in ("limits", "requests"):
        round_up_to_milli(as_object(resources).get(name))


def round_up_to_milli(quantities: Any) -> None:
    """Round the quantities of a ResourceList up to thousandths, and write them in canonical form."""
    for name, quantity in as_object(quantities).items():
        if isinstance(quantity, str | int | float) and not isinstance(quantity, bool):
            try:
                quantities[name] = str(parse(quantity).round_up(_MILLI))
            except QuantityError:
                continue


def default_volume(volume: dict[str, Any], *, every: bool = False) -> None:
    """Fill in the defaults of a volume. [SS-7] ``every`` includes defaults that only an API server writes."""
    if not any(value is not None for key, value in volume.items() if key != "name"):
        volume["emptyDir"] = {}
    fill(as_object(volume.get("hostPath")), {"type": ""})
    for name in ("secret", "configMap", "downwardAPI", "projected"):
        fill(as_object(volume.get(name)), {"defaultMode": _FILE_MODE})
    _default_downward_api(object_at(volume, "downwardAPI"))
    for projection in objects((object_at(volume, "projected") or {}).get("sources")):
        _default_downward_api(object_at(projection, "downwardAPI"))
        fill(as_object(projection.get("serviceAccountToken")), {"expirationSeconds": _TOKEN_SECONDS})
    if every:
        _default_rare_sources(volume)


def _default_rare_sources(volume: dict[str, Any]) -> None:
    for name, fields in _VOLUME_FIELDS.items():
        _fill(as_object(volume.get(name)), fields)
    image = object_at(volume, "image")
    if image is not None and not image.get("pullPolicy"):
        image["pullPolicy"] = default_pull_policy(image.get("reference"))
    claim = object_at(object_at(object_at(volume, "ephemeral"), "volumeClaimTemplate"), "spec")
    if claim is not None:
        _fill(claim, {"volumeMode": "Filesystem"})
        _round_up(claim.get("resources"))


def _default_downward_api(source: dict[str, Any] | None) -> None:
    for item in objects((source or {}).get("items")):
        default_field_ref(object_at(item, "fieldRef"))


def _default_http_get(handler: dict[str, Any] | None) -> None:
    _fill(as_object((handler or {}).get("httpGet")), {"path": "/", "scheme": "HTTP"})


def _fill(target: dict[str, Any], values: Mapping[str, Any]) -> None:
    for key, value in values.items():
        # As in Go, a zero value counts as missing. An explicit false is kept.
        if not target.get(key) and target.get(key) is not False:
            target[key] = value
