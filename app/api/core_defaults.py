"""The defaults of core types that sit inside our kinds, as the API server would fill them in.

Needed where hashes and revisions are made of defaulted containers and templates (SS-6, SS-7, CS-16), and as OpenKruise
fills them in: an API server would add fields of its own (serviceAccount, for one), which would show as changes.
Functions change the dict they are given; whatever has another type than it should is left for validation to name.

Source: Kubernetes 1.34, pkg/apis/core/v1/defaults.go.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from app.kube.images import parse_image
from app.kube.quantities import QuantityError, parse

_MILLI: Final = -3
_FILE_MODE: Final = 0o644
_TOKEN_SECONDS: Final = 3600
_GRACE_PERIOD_SECONDS: Final = 30
_PROBE_NUMBERS: Final[Mapping[str, int]] = {
    "timeoutSeconds": 1,
    "periodSeconds": 10,
    "successThreshold": 1,
    "failureThreshold": 3,
}
#: Sources with plain defaults: an empty or missing field becomes this.
_VOLUME_FIELDS: Final[Mapping[str, Mapping[str, Any]]] = {
    "iscsi": {"iscsiInterface": "default"},
    "rbd": {"pool": "rbd", "user": "admin", "keyring": "/etc/ceph/keyring"},
    "azureDisk": {"cachingMode": "ReadWrite", "kind": "Shared", "fsType": "ext4", "readOnly": False},
    "scaleIO": {"storageMode": "ThinProvisioned", "fsType": "xfs"},
}


def default_pod_template(template: dict[str, Any], *, host_ports: bool = False) -> None:
    """CS-16. ``host_ports`` (CS-18): with hostNetwork, a hostPort is the containerPort where it is left out.

    An imagePullPolicy that is left out becomes Always whatever the tag: so OpenKruise's workloads have it, and a
    manifest must make the same revision here.
    """
    spec = template.setdefault("spec", {}) if template.get("spec") is None else _object(template, "spec")
    if spec is None:
        return
    _fill(spec, {"restartPolicy": "Always", "dnsPolicy": "ClusterFirst", "schedulerName": "default-scheduler"})
    if spec.get("securityContext") is None:
        spec["securityContext"] = {}
    if spec.get("terminationGracePeriodSeconds") is None:
        spec["terminationGracePeriodSeconds"] = _GRACE_PERIOD_SECONDS
    for volume in objects(spec.get("volumes")):
        default_volume(volume)
    for name in ("initContainers", "containers", "ephemeralContainers"):
        for container in objects(spec.get(name)):
            _fill(container, {"imagePullPolicy": "Always"})
            default_container(container, startup_probe=True)
            if host_ports and spec.get("hostNetwork") is True:
                for port in objects(container.get("ports")):
                    _fill(port, {"hostPort": port.get("containerPort")})
    round_up_to_milli(spec.get("overhead"))


def default_claim_template(claim: dict[str, Any]) -> None:
    """CS-17: as OpenKruise has it, without the volumeMode that the claim itself will get."""
    status = claim.setdefault("status", {}) if claim.get("status") is None else _object(claim, "status")
    if status is not None:
        _fill(status, {"phase": "Pending"})
        round_up_to_milli(status.get("capacity"))
    resources = _object(_object(claim, "spec"), "resources")
    for name in ("limits", "requests"):
        round_up_to_milli((resources or {}).get(name))


def default_container(container: dict[str, Any], *, startup_probe: bool = False) -> None:
    """SS-6. ``startup_probe``: default that one too, which OpenKruise's SidecarSet leaves as it is (and so hashes)."""
    if not container.get("imagePullPolicy"):
        container["imagePullPolicy"] = default_pull_policy(container.get("image"))
    _fill(container, {"terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File"})
    for port in objects(container.get("ports")):
        _fill(port, {"protocol": "TCP"})
    for env in objects(container.get("env")):
        default_field_ref(_object(_object(env, "valueFrom"), "fieldRef"))
    resources = container.get("resources")
    if isinstance(resources, dict):
        for name in ("limits", "requests"):
            round_up_to_milli(resources.get(name))
    probes = ["livenessProbe", "readinessProbe", *(["startupProbe"] if startup_probe else [])]
    for probe in (_object(container, name) for name in probes):
        if probe is not None:
            _fill(probe, _PROBE_NUMBERS)
            _default_http_get(probe)
    lifecycle = _object(container, "lifecycle")
    for hook in ("postStart", "preStop"):
        _default_http_get(_object(lifecycle, hook))


def default_pull_policy(image: Any) -> str:
    """``Always`` for tag latest or an image without tag and digest, else ``IfNotPresent``."""
    # A transport prefix is something nodes report; in a spec it makes the reference invalid, so no tag is found.
    reference = parse_image(image) if isinstance(image, str) and "://" not in image else None
    latest = reference is not None and (reference.tag == "latest" or not (reference.tag or reference.digest))
    return "Always" if latest else "IfNotPresent"


def default_field_ref(reference: dict[str, Any] | None) -> None:
    """An ObjectFieldSelector: apiVersion v1."""
    if reference is not None:
        _fill(reference, {"apiVersion": "v1"})


def round_up_to_milli(quantities: Any) -> None:
    """A ResourceList: nothing finer than thousandths, written canonically."""
    if not isinstance(quantities, dict):
        return
    for name, quantity in quantities.items():
        if isinstance(quantity, str | int | float) and not isinstance(quantity, bool):
            try:
                quantities[name] = str(parse(quantity).round_up(_MILLI))
            except QuantityError:
                continue


def default_volume(volume: dict[str, Any]) -> None:
    """SS-7: a source where there is none, and the defaults of the one there is."""
    if not any(value is not None for key, value in volume.items() if key != "name"):
        volume["emptyDir"] = {}
    host_path = _object(volume, "hostPath")
    if host_path is not None and host_path.get("type") is None:
        host_path["type"] = ""
    for name in ("secret", "configMap", "downwardAPI", "projected"):
        source = _object(volume, name)
        if source is not None and source.get("defaultMode") is None:
            source["defaultMode"] = _FILE_MODE
    _default_downward_api(_object(volume, "downwardAPI"))
    for projection in objects((_object(volume, "projected") or {}).get("sources")):
        _default_downward_api(_object(projection, "downwardAPI"))
        token = _object(projection, "serviceAccountToken")
        if token is not None and token.get("expirationSeconds") is None:
            token["expirationSeconds"] = _TOKEN_SECONDS
    for name, fields in _VOLUME_FIELDS.items():
        source = _object(volume, name)
        if source is not None:
            _fill(source, fields)
    _default_rare_sources(volume)


def _default_rare_sources(volume: dict[str, Any]) -> None:
    image = _object(volume, "image")
    if image is not None and not image.get("pullPolicy"):
        image["pullPolicy"] = default_pull_policy(image.get("reference"))
    claim = _object(_object(_object(volume, "ephemeral"), "volumeClaimTemplate"), "spec")
    if claim is not None:
        _fill(claim, {"volumeMode": "Filesystem"})


def _default_downward_api(source: dict[str, Any] | None) -> None:
    for item in objects((source or {}).get("items")):
        default_field_ref(_object(item, "fieldRef"))


def _default_http_get(handler: dict[str, Any] | None) -> None:
    action = _object(handler, "httpGet")
    if action is not None:
        _fill(action, {"path": "/", "scheme": "HTTP"})


def _fill(target: dict[str, Any], values: Mapping[str, Any]) -> None:
    for key, value in values.items():
        # Go sees no difference between a missing field and its zero. false is its own default where it is one.
        if not target.get(key) and target.get(key) is not False:
            target[key] = value


def _object(parent: Mapping[str, Any] | None, key: str) -> dict[str, Any] | None:
    value = parent.get(key) if parent is not None else None
    return value if isinstance(value, dict) else None


def objects(value: Any) -> Iterator[dict[str, Any]]:
    """The objects of a list; nothing where ``value`` is none, or for items that are none."""
    if isinstance(value, list):
        yield from (item for item in value if isinstance(item, dict))
