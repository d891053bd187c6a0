from datetime import UTC, datetime

import msgspec
import orjson
import pytest

from app.kube.objects import (
    ControllerRevision,
    Lease,
    decode_controller_revision,
    decode_lease,
    decode_pod,
    decode_secret,
)
from tests.kit.objects import pod_json, reference


def test_a_pod_has_only_the_fields_in_use():
    started = {
        "name": "main",
        "containerID": "containerd://1",
        "state": {"running": {"startedAt": "2026-11-21T03:10:18Z"}},
    }
    body = pod_json(
        "web-0",
        ready=True,
        containers={"main": "shop:1", "proxy": "envoy:1"},
        spec={"readinessGates": [{"conditionType": "KruisePodReady"}]},
        status={"containerStatuses": [started]},
        resourceVersion="99",
        creationTimestamp="2026-11-21T03:10:17Z",
        ownerReferences=[reference("apps/v1", "ReplicaSet", "web")],
        managedFields=[{"manager": "kubelet"}],
    )
    pod = decode_pod(orjson.dumps(body))
    assert (pod.metadata.name, pod.metadata.resource_version) == ("web-0", "99")
    assert pod.metadata.creation_timestamp == datetime(2026, 11, 21, 3, 10, 17, tzinfo=UTC)
    assert pod.metadata.deletion_timestamp is None
    assert pod.metadata.controller is not None
    assert (pod.metadata.controller.group, pod.metadata.controller.kind) == ("apps", "ReplicaSet")
    assert [(c.name, c.image) for c in pod.spec.containers] == [("main", "shop:1"), ("proxy", "envoy:1")]
    assert pod.spec.readiness_gates[0].condition_type == "KruisePodReady"
    assert pod.status.container_statuses[0].container_id == "containerd://1"
    assert pod.status.container_statuses[0].state.running is not None
    assert pod.condition("Ready").status == "True"
    assert pod.condition("Nothing") is None
    assert not hasattr(pod.metadata, "managed_fields")


def test_objects_are_immutable():
    pod = decode_pod(b"{}")
    with pytest.raises(AttributeError):
        pod.metadata = None  # type: ignore[misc,assignment]


def test_a_malformed_object_is_refused_with_the_field():
    with pytest.raises(msgspec.ValidationError, match=r"Expected `str`, got `int` - at `\$.metadata.name`"):
        decode_pod(b'{"metadata":{"name":1}}')


def test_a_revision_keeps_its_data_without_the_raw_message():
    data = b'{"spec": {"b":1, "a":[ 2 ]}}'
    message = b'{"metadata":{"name":"r1"},"data":' + data + b',"revision":3,"padding":"' + b"x" * 100_000 + b'"}'
    revision = decode_controller_revision(message)
    assert bytes(revision.data) == data
    assert revision.revision == 3
    assert memoryview(revision.data).nbytes == len(data)
    # A view would have the whole message as its base; a copy holds its own bytes.
    assert revision.data.copy() is revision.data
    assert bytes(ControllerRevision().data) == b"null"


def test_secrets_are_decoded():
    secret = decode_secret(orjson.dumps({"type": "kubernetes.io/tls", "data": {"tls.crt": "aGVsbG8="}}))
    assert secret.data == {"tls.crt": b"hello"}


def test_a_lease_has_microsecond_times():
    lease = decode_lease(b'{"spec":{"holderIdentity":"a","renewTime":"2026-01-02T03:04:05.678901Z"}}')
    assert lease.spec.renew_time == datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
    assert Lease().spec.holder_identity is None


def test_container_env_is_reduced_and_shared():
    def env(name, **source):
        return {"name": name, "valueFrom": source}

    raw = {
        "name": "main",
        "env": [
            {"name": "PLAIN", "value": "x"},
            env("NAME", fieldRef={"fieldPath": "metadata.name"}),
            env("CFG", fieldRef={"apiVersion": "v1", "fieldPath": "metadata.annotations['cfg']"}),
            env("KEY", configMapKeyRef={"name": "m", "key": "k"}),
        ],
        "resources": {"limits": {"cpu": "1"}, "requests": {"cpu": "500m"}},
        "resizePolicy": [{"resourceName": "cpu", "restartPolicy": "NotRequired"}],
    }
    one, two = (decode_pod(orjson.dumps({"spec": {"containers": [raw]}})).spec.containers[0] for _ in range(2))
    assert [entry.name for entry in one.env] == ["CFG", "KEY"]
    assert one.resources.requests == {"cpu": "500m"}
    assert one.resources is two.resources
    assert one.env is two.env
    assert one.resize_policy is two.resize_policy
