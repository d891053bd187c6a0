"""The defaults of all fields of a Pod template match templates stored by OpenKruise."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any, Final

import pytest

from app.api.core.defaults import completed_template, default_pod_template, default_volume
from app.api.gojson import GoType, normalized
from app.api.gopod import POD_TEMPLATE
from app.kube.jsonvalues import json_copy
from app.kube.patches import same
from tests.api.recorded import recorded

Json = dict[str, Any]

PROBE: Final = {"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3}
HTTP: Final = {"path": "/", "scheme": "HTTP"}
#: Defaults of fields of a container that no recorded manifest uses, and those that none uses in other containers.
OF_A_CONTAINER: Final = {
    "ports[].protocol": "TCP",
    **{
        f"{probe}.{name}": value
        for probe in ("livenessProbe", "readinessProbe", "startupProbe")
        for name, value in {**PROBE, **{f"httpGet.{name}": value for name, value in HTTP.items()}}.items()
    },
    **{f"lifecycle.{hook}.httpGet.{name}": HTTP[name] for hook in ("postStart", "preStop") for name in HTTP},
}
OF_OTHERS: Final = {
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
    "env[].valueFrom.fieldRef.apiVersion": "v1",
}
#: Defaults of fields that no recorded manifest uses.
UNRECORDED: Final = {
    **{f"spec.containers[].{name}": value for name, value in OF_A_CONTAINER.items()},
    **{
        f"spec.{containers}[].{name}": value
        for containers in ("initContainers", "ephemeralContainers")
        for name, value in {**OF_A_CONTAINER, **OF_OTHERS}.items()
    },
    "spec.ephemeralContainers[].imagePullPolicy": "Always",
    "spec.volumes[].hostPath.type": "",
    **{f"spec.volumes[].{name}.defaultMode": 0o644 for name in ("secret", "configMap", "downwardAPI", "projected")},
    "spec.volumes[].downwardAPI.items[].fieldRef.apiVersion": "v1",
    "spec.volumes[].projected.sources[].downwardAPI.items[].fieldRef.apiVersion": "v1",
    "spec.volumes[].projected.sources[].serviceAccountToken.expirationSeconds": 3600,
}
#: Files of kinds whose webhook completes the Pod template.
COMPLETED: Final = ("advancedcronjob", "broadcastjob", "cloneset", "statefulset", "uniteddeployment")


def every_struct(go_type: GoType) -> Any:
    """Return a value of the type with every nested struct present and all other fields missing."""
    if go_type.fields:
        made = {field.name: every_struct(field.go_type) for field in go_type.fields}
        return {name: value for name, value in made.items() if value is not None}
    if go_type.item is not None and not go_type.is_map and go_type.item.fields:
        return [every_struct(go_type.item)]
    return None


def added(before: Any, after: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield path and value of each field that only ``after`` has."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key, value in after.items():
            where = f"{path}.{key}".lstrip(".")
            if key in before:
                yield from added(before[key], value, where)
            else:
                yield where, value
    elif isinstance(before, list) and isinstance(after, list):
        for one, other in zip(before, after, strict=True):
            yield from added(one, other, f"{path}[]")


def pod_templates(value: Any, path: str = "") -> Iterator[tuple[str, Json]]:
    if isinstance(value, dict):
        template = value.get("template")
        if isinstance(template, dict) and isinstance((template.get("spec") or {}).get("containers"), list):
            yield path, template
        for key, item in value.items():
            yield from pod_templates(item, f"{path}.{key}")


def recorded_templates() -> list[tuple[Json, Json]]:
    """Return pairs of a submitted template and the one that OpenKruise stored."""
    found = []
    for kind in COMPLETED:
        for case in recorded(f"samples-{kind}.json"):
            if not case["ok"] or not case.get("created"):
                continue
            stored = dict(pod_templates(case["created"]))
            for path, template in pod_templates(case["manifest"]):
                if "terminationGracePeriodSeconds" in stored[path]["spec"]:  # otherwise OpenKruise does not default it
                    found.append((template, stored[path]))
    return found


TEMPLATES: Final = recorded_templates()


def holds(value: Any, path: str) -> bool:
    """Return whether ``value`` has the object that the field at ``path`` belongs to."""
    first, _, rest = path.partition(".")
    if not rest:
        return isinstance(value, dict)
    inner = value.get(first.removesuffix("[]")) if isinstance(value, dict) else None
    return any(holds(item, rest) for item in (inner if isinstance(inner, list) else [inner]))


@pytest.mark.behaviour("CS-16")
def test_every_default_of_every_field_matches_the_recording() -> None:
    defaults: dict[str, list[Any]] = defaultdict(list)
    for given, stored in TEMPLATES:
        # Go prints empty structs and times, which are not defaults.
        printed = normalized(POD_TEMPLATE, given)
        for path, value in added(printed, normalized(POD_TEMPLATE, stored)):
            if value not in defaults[path]:
                defaults[path].append(value)
    assert defaults.pop("spec.volumes[].emptyDir") == [{}]  # the default of a volume without a source
    assert all(len(values) == 1 for values in defaults.values())
    expected = {path: values[0] for path, values in defaults.items()}
    assert not expected.keys() & UNRECORDED.keys()

    skeleton = every_struct(POD_TEMPLATE)
    completed = json_copy(skeleton)
    default_pod_template(completed)
    made = dict(added(skeleton, completed))
    assert {**made, "spec.securityContext": {}} == {**expected, **UNRECORDED}
    known = [path for path in UNRECORDED if any(holds(given, path) for given, _ in TEMPLATES)]
    assert not known, "recorded manifests have the object, and OpenKruise left the field out"


@pytest.mark.behaviour("CS-16", "AS-14", "UD-5", "BJ-2", "ACJ-2")
def test_reapplying_a_recorded_manifest_keeps_the_stored_template() -> None:
    assert len(TEMPLATES) > 300
    for given, stored in TEMPLATES:
        assert same(completed_template(json_copy(given), stored), stored)


def whole() -> Json:
    """Return a template with every struct and no default values."""
    template = every_struct(POD_TEMPLATE)
    for kind in ("containers", "initContainers"):
        template["spec"][kind][0] |= {"name": kind, "image": "nginx:1"}
        template["spec"][kind][0]["ports"] = [{"containerPort": 80}]
    template["spec"]["hostNetwork"] = True
    template["spec"]["volumes"].append({"name": "empty"})
    template["spec"]["volumes"][0]["image"]["reference"] = "data:1"
    return template


def stored_by_kubernetes(template: Json) -> None:
    """Add what the API server adds to a template of its own kinds."""
    template["spec"]["initContainers"][0]["imagePullPolicy"] = "IfNotPresent"
    for volume in template["spec"]["volumes"]:
        default_volume(volume, every=True)


def stored_by_an_earlier_release(template: Json) -> None:
    """Add the pull policy that earlier releases set in init containers."""
    stored_by_kubernetes(template)
    template["spec"]["initContainers"][0]["imagePullPolicy"] = "Always"


@pytest.mark.behaviour("CS-16")
@pytest.mark.parametrize("host_ports", [False, True])
@pytest.mark.parametrize("more", [lambda _: None, stored_by_kubernetes, stored_by_an_earlier_release])
def test_reapplying_a_manifest_keeps_any_stored_defaults(more: Any, host_ports: bool) -> None:
    stored = whole()
    more(stored)
    default_pod_template(stored, host_ports=host_ports)
    kept = json_copy(stored)
    assert same(completed_template(whole(), stored), kept)
    assert same(completed_template(whole(), stored, host_ports=True), kept)


@pytest.mark.behaviour("CS-16")
@pytest.mark.parametrize(
    "change",
    [
        lambda spec: spec["initContainers"][0].update(image="nginx:2"),
        lambda spec: spec["initContainers"][0].update(imagePullPolicy="Never"),
        lambda spec: spec["containers"][0].update(imagePullPolicy="IfNotPresent"),
        lambda spec: spec["containers"][0]["ports"][0].update(hostPort=81),
        lambda spec: spec["volumes"][0]["azureDisk"].update(cachingMode="None"),
        lambda spec: spec["volumes"][0]["ephemeral"]["volumeClaimTemplate"]["spec"].update(volumeMode="Block"),
        lambda spec: spec["containers"][0]["livenessProbe"]["grpc"].update(service="x"),
        lambda spec: spec.update(dnsPolicy="Default"),
    ],
)
def test_other_differences_are_changes(change: Any) -> None:
    stored, given = whole(), whole()
    default_pod_template(stored)
    change(given["spec"])
    expected = json_copy(given)
    default_pod_template(expected)
    assert same(completed_template(given, stored), expected)
    assert not same(expected, stored)
