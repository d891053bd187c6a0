"""The kinds of node agents: fields, defaults, conversion and validation, compared with records of OpenKruise."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.api import crd, names, structural
from app.api.conversion import convert
from app.api.kind import KindDefinition
from app.features.containerrecreate import defaults as recreate_defaults
from app.features.containerrecreate import validation
from app.features.containerrecreate.kind import CONTAINER_RECREATE_REQUEST, parsed_snapshot, snapshot_text
from app.features.imagepull.defaults import node_image_with_defaults
from app.features.imagepull.kind import IMAGE_LIST_PULL_JOB, IMAGE_PULL_JOB, NODE_IMAGE
from app.features.imagepull.validation import (
    job_errors,
    job_warnings,
    list_job_errors,
    node_image_errors,
    node_image_warnings,
)
from app.features.podprobe.kind import NODE_POD_PROBE, POD_PROBE_MARKER
from app.features.podprobe.validation import spec_errors as marker_errors
from app.kube.fielderrors import aggregate
from app.kube.images import familiar_image
from tests.api.recorded import recorded, undescribed

KINDS = (IMAGE_PULL_JOB, IMAGE_LIST_PULL_JOB, NODE_IMAGE, CONTAINER_RECREATE_REQUEST, POD_PROBE_MARKER, NODE_POD_PROBE)
NOW = "2026-01-01T00:00:00Z"
V1, V1ALPHA1 = "apps.kruise.io/v1beta1", "apps.kruise.io/v1alpha1"


# --- The kinds


@pytest.mark.behaviour("IMG-1", "CRR-1", "PPM-1")
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.kind)
def test_definitions_match_openkruise_except_for_descriptions(kind: KindDefinition) -> None:
    ours = undescribed(crd.manifest(kind)["spec"])
    theirs = copy.deepcopy(recorded("crds-node-operations.json")[kind.crd_name])
    ours.pop("conversion", None)
    for version in ours["versions"]:
        schema = version["schema"]["openAPIV3Schema"]
        # Both reject an object without spec, OpenKruise in its webhook.
        schema.pop("required", None)
        if kind is CONTAINER_RECREATE_REQUEST:
            container = schema["properties"]["spec"]["properties"]["containers"]["items"]["properties"]
            assert container["preStop"]["properties"].pop("sleep")  # CRR-61
    assert ours == theirs


def test_models_read_openkruise_objects_without_loss() -> None:
    by_kind = {kind.kind: kind for kind in KINDS}
    for item in recorded("13-node-agent.json")["items"]:
        version = by_kind[item["kind"]].version(item["apiVersion"])
        assert structural.validate(version.schema, item) == []
        assert version.model.model_validate_json(json.dumps(item)).to_dict() == item


# --- Image references


@pytest.mark.behaviour("IMG-20")
@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("ubuntu", ("ubuntu", "latest")),
        ("docker.io/library/ubuntu:latest", ("ubuntu", "latest")),
        ("index.docker.io/library/ubuntu", ("ubuntu", "latest")),
        ("docker.io/acme/app:1", ("acme/app", "1")),
        ("docker.io/library/acme/app:1", ("library/acme/app", "1")),
        ("reg:5000/my/image:v1", ("reg:5000/my/image", "v1")),
        ("localhost/app", ("localhost/app", "latest")),
        ("ubuntu:20.04@sha256:" + "0" * 64, ("ubuntu", "sha256:" + "0" * 64)),
        ("Registry.example/x:1", ("Registry.example/x", "1")),
        ("UPPER/x", None),
        ("ubuntu/X", None),
        ("bad image", None),
        ("", None),
        ("a" * 64, None),
    ],
)
def test_names_match_openkruise(text: str, shown: tuple[str, str] | None) -> None:
    found = familiar_image(text)
    assert (found and (found.name, found.tag)) == shown


@pytest.mark.behaviour("IMG-100")
def test_a_digest_is_joined_with_an_at_sign() -> None:
    assert str(familiar_image("ubuntu@sha256:" + "0" * 64)) == "ubuntu@sha256:" + "0" * 64
    assert str(familiar_image("ubuntu:1")) == "ubuntu:1"


# --- Defaults and mistakes


@pytest.mark.behaviour("IMG-6")
def test_tags_of_a_node_image_get_times_and_policies_in_sorted_order() -> None:
    spec = {"images": {"nginx": {"tags": [{"tag": "b", "createdAt": "2025-01-01T00:00:00Z"}, {"tag": "a"}]}}}
    status = {"desired": 2, "imageStatuses": {"nginx": {"tags": [{"tag": "b"}, {"tag": "a"}]}}}
    filled = node_image_with_defaults({"spec": spec, "status": status}, NOW)
    policy = {"timeoutSeconds": 600, "backoffLimit": 3}
    assert filled["spec"]["images"]["nginx"]["tags"] == [
        {"tag": "a", "createdAt": NOW, "pullPolicy": policy},
        {"tag": "b", "createdAt": "2025-01-01T00:00:00Z", "pullPolicy": policy},
    ]
    assert [tag["tag"] for tag in filled["status"]["imageStatuses"]["nginx"]["tags"]] == ["a", "b"]


@pytest.mark.behaviour("IMG-12")
def test_node_image_errors_name_the_field() -> None:
    tag = {"tag": "1", "createdAt": NOW, "version": -1, "pullPolicy": {"ttlSecondsAfterFinished": 1}}
    spec = {"images": {"": {"tags": []}, "nginx": {"tags": [tag, {**tag, "version": 0}, {"tag": ""}]}}}
    assert {error.field for error in node_image_errors(spec)} == {
        "spec.images[]",
        "spec.images[nginx].tags[0].version",
        "spec.images[nginx].tags[1].tag",
        "spec.images[nginx].tags[2].tag",
        "spec.images[nginx].tags[2].createdAt",
        "spec.images[nginx].tags[2].pullPolicy",
    }
    many = {"images": {f"image{n}": {"tags": []} for n in range(257)}}
    assert aggregate(node_image_errors(many)) == "spec.images: Too many: 257: must have at most 256 items"


@pytest.mark.behaviour("IMG-7", "IMG-8", "IMG-11")
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"selector": {"names": ["a", "a"]}}, 'spec.selector.names: Duplicate value: "a"'),
        (
            {"podSelector": {"matchExpressions": [{"key": "a", "operator": "Near"}]}},
            'spec.podSelector.matchExpressions[0].operator: Invalid value: "Near": not a valid selector operator',
        ),
        ({"parallelism": "5"}, ""),
        ({"parallelism": "0"}, ""),
        ({"parallelism": "-1"}, "spec.parallelism: Invalid value: -1: parallelism must be non-negative"),
        ({"parallelism": "9" * 40}, 'spec.parallelism: Invalid value: "' + "9" * 40),
    ],
)
def test_job_errors_name_the_field(change: dict[str, Any], message: str) -> None:
    spec = {"image": "nginx", "completionPolicy": {"type": "Always"}, **change}
    said = aggregate(job_errors(spec))
    assert said.startswith(message)
    assert bool(said) == bool(message)
    assert aggregate(list_job_errors({**spec, "images": ["nginx"]})) == said


@pytest.mark.behaviour("IMG-11")
def test_the_jobs_of_a_list_take_a_limited_number_of_bytes() -> None:
    nodes = {"names": [f"node-{number:05}" for number in range(10_000)]}
    spec = {"completionPolicy": {"type": "Always"}, "selector": nodes, "images": [f"image{n}" for n in range(130)]}
    said = "spec.images: Invalid value: 130: the ImagePullJobs would have 16907930 bytes together, more than 16777216"
    assert aggregate(list_job_errors(spec)).startswith(said)
    assert not list_job_errors({**spec, "images": spec["images"][:100]})


@pytest.mark.behaviour("IMG-9", "IMG-11")
def test_unsupported_list_job_fields_get_a_warning() -> None:
    spec = {
        "images": [f"image{n}" for n in range(256)],
        "imagePullPolicy": "Sometimes",
        "completionPolicy": {"type": "Always", "activeDeadlineSeconds": 10},
        "pullPolicy": {"timeoutSeconds": 600},
    }
    assert aggregate(list_job_errors(spec)) == "spec.images: Too many: 256: must have at most 255 items"
    assert [warning.split(":")[0] for warning in job_warnings(spec)] == [
        "spec.imagePullPolicy",
        "spec.completionPolicy.activeDeadlineSeconds",
    ]


# --- Conversion


def same_ways(obj: dict[str, Any], other: str) -> dict[str, Any]:
    """Convert ``obj`` to the other version and check that the round trip changes nothing."""
    shown = convert(obj, other)
    assert convert(shown, obj["apiVersion"]) == obj
    return shown


@pytest.mark.behaviour("IMG-1")
def test_v1alpha1_does_not_show_the_mode_of_a_pull_secret_and_does_not_lose_it() -> None:
    obj: dict[str, Any] = {
        "apiVersion": V1,
        "kind": "NodeImage",
        "metadata": {"name": "n"},
        "spec": {"images": {"nginx": {"tags": [], "pullSecrets": [{"namespace": "a", "name": "b", "mode": "batch"}]}}},
    }
    shown = same_ways(obj, V1ALPHA1)
    assert shown["spec"]["images"]["nginx"]["pullSecrets"] == [{"namespace": "a", "name": "b"}]
    shown["spec"]["images"]["nginx"]["pullSecrets"] = [{"namespace": "a", "name": "c"}]
    assert convert(shown, V1)["spec"]["images"]["nginx"]["pullSecrets"] == [{"namespace": "a", "name": "c"}]


SNAPSHOT = [{"name": "main", "ready": True, "restartCount": 1, "containerID": "containerd://abc"}]
SNAPSHOT_TEXT = '[{"name":"main","ready":true,"restartCount":1,"containerID":"containerd://abc"}]'


def request(api_version: str, status: dict[str, Any], annotations: dict[str, str] | None = None) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": "r", **({"annotations": annotations} if annotations else {})}
    spec = {"podName": "p", "containers": [{"name": "main"}]}
    kind = "ContainerRecreateRequest"
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec, "status": status}


@pytest.mark.behaviour("CRR-1")
def test_snapshot_and_grace_become_status_fields_in_v1beta1() -> None:
    condition = {
        "type": "PreRecreateGrace",
        "status": "True",
        "reason": "PreRecreateGrace",
        "message": "",
        "lastTransitionTime": NOW,
    }
    new = request(V1, {"phase": "Recreating", "containerStatusSnapshot": SNAPSHOT, "conditions": [condition]})
    shown = same_ways(new, V1ALPHA1)
    annotations = shown["metadata"]["annotations"]
    assert annotations[names.CRR_SYNC_CONTAINER_STATUSES] == SNAPSHOT_TEXT
    assert annotations[names.CRR_UNREADY_ACQUIRED] == NOW
    assert shown["status"] == {"phase": "Recreating"}
    old = request(
        V1ALPHA1,
        {"phase": "Recreating"},
        {names.CRR_SYNC_CONTAINER_STATUSES: SNAPSHOT_TEXT, names.CRR_UNREADY_ACQUIRED: NOW},
    )
    stored = same_ways(old, V1)
    assert stored["status"] == new["status"]
    assert stored["metadata"]["annotations"] == old["metadata"]["annotations"]


@pytest.mark.behaviour("CRR-1")
@pytest.mark.parametrize("text", ["[", "{}", '[{"name":1}]', '[{"ready":true}]', "[" * 100_000, '[{"name":"a","x":1}]'])
def test_unreadable_annotations_are_dropped_without_data_loss(text: str) -> None:
    old = request(
        V1ALPHA1,
        {"phase": "Recreating"},
        {names.CRR_SYNC_CONTAINER_STATUSES: text, names.CRR_UNREADY_ACQUIRED: "yesterday"},
    )
    assert same_ways(old, V1)["status"] == {"phase": "Recreating"}


@pytest.mark.behaviour("CRR-1")
@given(
    st.lists(
        st.fixed_dictionaries(
            {"name": st.text(min_size=1), "ready": st.booleans(), "restartCount": st.integers(0, 2**31 - 1)},
            optional={"containerID": st.text()},
        )
    )
)
def test_a_snapshot_can_be_read_back(snapshot: list[dict[str, Any]]) -> None:
    assert parsed_snapshot(snapshot_text(snapshot)) == snapshot


@pytest.mark.parametrize("obj", recorded("13-node-agent.json")["items"], ids=lambda obj: obj["metadata"]["name"])
def test_recorded_objects_survive_conversion(obj: dict[str, Any]) -> None:
    same_ways(obj, V1ALPHA1 if obj["apiVersion"] == V1 else V1)


# --- ContainerRecreateRequest


def pod(**status: Any) -> dict[str, Any]:
    container = {"name": "main", "lifecycle": {"preStop": {"httpGet": {"port": "web"}}}, "ports": [{"name": "web"}]}
    running = {"name": "main", "containerID": "containerd://abc", "restartCount": 2}
    return {
        "metadata": {"name": "p", "uid": "u"},
        "spec": {
            "nodeName": "n",
            "terminationGracePeriodSeconds": 30,
            "containers": [container, {"name": "new"}],
            "initContainers": [{"name": "init"}],
        },
        "status": {"phase": "Running", "containerStatuses": [running, {"name": "new", "containerID": ""}], **status},
    }


@pytest.mark.behaviour("CRR-3")
@pytest.mark.parametrize(
    ("spec", "messages"),
    [
        (
            {"podName": "", "containers": []},
            [
                "spec.podName: Required value: the name of the Pod",
                "spec.containers: Required value: name at least one container",
            ],
        ),
        ({"containers": [{"name": "a"}, {"name": "a"}]}, ['spec.containers[1].name: Duplicate value: "a"']),
        (
            {"containers": [{"name": "a", "preStop": {}, "ports": [], "statusContext": {}}]},
            [
                f"spec.containers[0].{field}: Forbidden: is filled in from the Pod; leave it out"
                for field in ("preStop", "ports", "statusContext")
            ],
        ),
        (
            {"activeDeadlineSeconds": 2},
            ["spec.activeDeadlineSeconds: Invalid value: 2: must be greater than or equal to 3"],
        ),
        (
            {"strategy": {"failurePolicy": "Try", "unreadyGracePeriodSeconds": -1}},
            [
                'spec.strategy.failurePolicy: Unsupported value: "Try": supported values: "Fail", "Ignore"',
                "spec.strategy.unreadyGracePeriodSeconds: Invalid value: -1: must be greater than or equal to 0",
            ],
        ),
        ({}, []),
    ],
)
def test_impossible_requests_are_refused(spec: dict[str, Any], messages: list[str]) -> None:
    given = {"podName": "p", "containers": [{"name": "main"}], "strategy": {"failurePolicy": "Fail"}, **spec}
    assert list(map(str, validation.spec_errors(given))) == messages


@pytest.mark.behaviour("CRR-3")
@pytest.mark.parametrize(
    ("container", "of", "field"),
    [
        ("main", pod(), ""),
        ("main", pod(phase="Succeeded"), "spec.podName"),
        ("main", pod(phase="Succeeded", conditions=[{"type": "SidecarTerminated", "status": "False"}]), ""),
        ("main", {**pod(), "metadata": {"deletionTimestamp": NOW}}, "spec.podName"),
        ("main", {**pod(), "spec": {}}, "spec.podName"),
        ("other", pod(), "spec.containers[0].name"),
        ("init", pod(), "spec.containers[0].name"),
        ("new", pod(), "spec.containers[0].name"),
    ],
)
def test_only_started_containers_of_a_running_pod_can_be_restarted(
    container: str, of: dict[str, Any], field: str
) -> None:
    errors = validation.pod_errors({"podName": "p", "containers": [{"name": container}]}, of)
    assert [error.field for error in errors] == ([field] if field else [])


@pytest.mark.behaviour("CRR-4", "CRR-5")
def test_requests_are_filled_in_from_the_pod() -> None:
    filled = recreate_defaults.with_pod(
        {"metadata": {"labels": {"a": "b"}}, "spec": {"podName": "p", "containers": [{"name": "main"}]}},
        pod(),
        virtual_node=True,
    )
    assert filled["metadata"]["labels"] == {
        "a": "b",
        "crr.apps.kruise.io/active": "true",
        "crr.apps.kruise.io/node-name": "n",
        "crr.apps.kruise.io/pod-uid": "u",
        "type": "virtual-kubelet",
    }
    assert filled["spec"]["strategy"] == {"failurePolicy": "Fail", "terminationGracePeriodSeconds": 30}
    assert filled["spec"]["containers"] == [
        {
            "name": "main",
            "preStop": {"httpGet": {"port": "web"}},
            "ports": [{"name": "web"}],
            "statusContext": {"containerID": "containerd://abc", "restartCount": 2},
        }
    ]


@pytest.mark.behaviour("CRR-2")
@pytest.mark.parametrize(
    ("change", "fields"),
    [
        ({}, []),
        ({"spec": {}}, ["spec"]),
        ({"metadata": {"labels": {}}}, ["metadata.labels[crr.apps.kruise.io/pod-uid]"]),
        (
            {"metadata": {"labels": {names.CRR_POD_UID: "u"}, "annotations": {names.CRR_UNREADY_ACQUIRED: "later"}}},
            ["metadata.annotations[crr.apps.kruise.io/unready-acquired]"],
        ),
    ],
)
def test_changes_to_immutable_fields_of_a_request_are_refused(change: dict[str, Any], fields: list[str]) -> None:
    labels, annotations = {names.CRR_POD_UID: "u"}, {names.CRR_UNREADY_ACQUIRED: NOW}
    former = {"metadata": {"labels": labels, "annotations": annotations}, "spec": {"podName": "p"}}
    changed = {**former, **change}
    if change.get("metadata", {}).keys() == {"labels"}:
        changed["metadata"] = {**changed["metadata"], "annotations": annotations}
    assert [error.field for error in validation.update_errors(changed, former)] == fields


# --- PodProbeMarker


def marker(**probe: Any) -> dict[str, Any]:
    entry = {"name": "p", "containerName": "main", "podConditionType": "a.com/p", "probe": {"tcpSocket": {"port": 1}}}
    return {"selector": {"matchLabels": {"a": "b"}}, "probes": [{**entry, **probe}]}


@pytest.mark.behaviour("PPM-1", "PPM-2", "PPM-3", "PPM-4", "PPM-44")
@pytest.mark.parametrize(
    ("spec", "fields"),
    [
        (marker(), []),
        (marker(name="a#b"), ["spec.probes[0].name"]),
        (marker(name="Ready"), ["spec.probes[0].name"]),
        (marker(podConditionType="Ready"), ["spec.probes[0].podConditionType"]),
        (marker(podConditionType="KruisePodReady"), ["spec.probes[0].podConditionType"]),
        (marker(podConditionType="a b"), ["spec.probes[0].podConditionType"]),
        (marker(podConditionType=""), ["spec.probes[0].markerPolicy"]),
        (marker(containerName=""), ["spec.probes[0].containerName"]),
        (marker(probe={"grpc": {"port": 1}}), ["spec.probes[0].probe.grpc"]),
        (marker(probe={"exec": {"command": []}}), ["spec.probes[0].probe.exec.command"]),
        (
            marker(probe={"exec": {"command": ["a"]}, "tcpSocket": {"port": 1}, "periodSeconds": -1}),
            ["spec.probes[0].probe.tcpSocket", "spec.probes[0].probe.periodSeconds"],
        ),
        (
            marker(probe={"tcpSocket": {"host": "h", "port": 70000}}),
            ["spec.probes[0].probe.tcpSocket.host", "spec.probes[0].probe.tcpSocket.port"],
        ),
        (
            marker(probe={"httpGet": {"port": "WEB", "scheme": "ftp", "httpHeaders": [{"name": "a b", "value": ""}]}}),
            [
                *["spec.probes[0].probe.httpGet.port"] * 2,
                "spec.probes[0].probe.httpGet.path",
                "spec.probes[0].probe.httpGet.scheme",
                "spec.probes[0].probe.httpGet.httpHeaders[0].name",
            ],
        ),
        (
            marker(probe={"httpGet": {"port": 1, "scheme": "HTTP", "path": "http://[x"}}),
            ["spec.probes[0].probe.httpGet.path"],
        ),
        (
            marker(markerPolicy=[{"state": "Succeeded", "labels": {"a b": "c"}}, {"state": "Succeeded"}]),
            [
                "spec.probes[0].markerPolicy[0].labels",
                "spec.probes[0].markerPolicy[1].state",
                "spec.probes[0].markerPolicy[1].labels",
            ],
        ),
        (marker(markerPolicy=[{"state": "Unknown", "labels": {"a": "b"}}]), ["spec.probes[0].markerPolicy[0].state"]),
        ({**marker(), "probes": marker()["probes"] * 2}, ["spec.probes[1].name"]),
        (
            {**marker(), "probes": [*marker()["probes"], *marker(name="q")["probes"]]},
            ["spec.probes[1].podConditionType"],
        ),
        ({**marker(), "probes": marker()["probes"] * 300}, ["spec.probes"]),
        ({**marker(), "selector": {}}, ["spec.selector"]),
        ({"probes": []}, ["spec.selector", "spec.probes"]),
    ],
)
def test_marker_errors_name_the_field(spec: dict[str, Any], fields: list[str]) -> None:
    assert [error.field for error in marker_errors(spec)] == fields


@pytest.mark.behaviour("PPM-1")
def test_the_selector_of_a_marker_is_immutable() -> None:
    former = {**marker(), "selector": {"matchLabels": {"a": "c"}}}
    assert [error.field for error in marker_errors(marker(), former)] == ["spec.selector"]


@pytest.mark.behaviour("IMG-112")
def test_image_lists_that_cannot_be_pulled_get_a_warning_on_creation() -> None:
    policy = {"ttlSecondsAfterFinished": 600}

    def spec(**images: list[str]) -> dict[str, Any]:
        tags = {name: [{"tag": tag, "pullPolicy": policy} for tag in wanted] for name, wanted in images.items()}
        return {"images": {name: {"tags": wanted} for name, wanted in tags.items()}}

    before = spec(ubuntu=["24 04"])
    now = spec(ubuntu=["24 04", "2 5", "22.04"], **{"UPPER/x": ["1"], "docker.io/library/nginx": ["1", "2"]})
    now["images"]["reg:5000/app"] = spec(x=["sha256:" + "0" * 64])["images"]["x"]
    assert node_image_warnings(now, before) == [
        'spec.images[ubuntu].tags[1]: "ubuntu:2 5" is not an image reference',
        'spec.images[UPPER/x].tags[0]: "UPPER/x:1" is not an image reference',
        'spec.images[docker.io/library/nginx]: use "nginx" instead; otherwise nodes that have the image pull it again',
    ]
    assert node_image_warnings(now, now) == []
    assert len(node_image_warnings(spec(ubuntu=[f"{number} x" for number in range(300)]), None)) == 10


@pytest.mark.behaviour("IMG-110")
@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"sandboxConfig": {"annotations": {"a": "v" * 32_000}}}, ""),
        ({"sandboxConfig": {"annotations": {"a": "v" * 33_000}}}, "spec.sandboxConfig: Invalid value: 33024: must"),
        ({"pullSecrets": [f"s{number}" for number in range(64)]}, ""),
        ({"pullSecrets": [f"s{number}" for number in range(65)]}, "spec.pullSecrets: Too many: 65: must"),
    ],
)
def test_one_job_cannot_fill_shared_objects(more: dict[str, Any], said: str) -> None:
    spec = {"completionPolicy": {"type": "Always"}, **more}
    assert aggregate(job_errors({"image": "nginx", **spec})).startswith(said)
    assert aggregate(list_job_errors({"images": ["nginx"], **spec})).startswith(said)
    assert bool(job_errors({"image": "nginx", **spec})) == bool(said)
