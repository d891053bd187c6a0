"""The webhooks of DaemonSets, beyond the recorded answers."""

from __future__ import annotations

from typing import Any

import pytest

from app.api.conversion import convert
from app.features.daemonset.kind import DAEMON_SET
from app.features.daemonset.webhooks import handlers
from app.pods.template_check import TemplateLookups
from tests.admission.writing import ALPHA, BETA, Json, Written, written

HANDLERS = handlers(TemplateLookups())


def daemon_set(version: str = BETA, *, annotations: Json | None = None, **spec: Any) -> Json:
    """Return a valid DaemonSet with ``spec`` merged over it."""
    return {
        "apiVersion": version,
        "kind": "DaemonSet",
        "metadata": {"name": "ds", "namespace": "shop", **({"annotations": annotations} if annotations else {})},
        "spec": {"selector": {"matchLabels": {"app": "web"}}, "template": template(), **spec},
    }


def template(**pod: Any) -> Json:
    return {
        "metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [{"name": "main", "image": "nginx:1"}], **pod},
    }


def rolling(**fields: Any) -> Json:
    return {"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": fields}}


def write(obj: Json, old: Json | None = None) -> Written:
    """Create ``obj``, or update ``old`` to it, in the version it is written in."""
    return written(DAEMON_SET, HANDLERS, obj, old)


PROGRESSIVE = "daemonset.kruise.io/progressive-create-pod"
UNREADABLE = {"matchExpressions": [{"key": "a", "operator": "In"}]}


@pytest.mark.behaviour("DS-9", "DS-11", "DS-12", "DS-13", "DS-14")
@pytest.mark.parametrize("version", [ALPHA, BETA])
@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (rolling(maxUnavailable=1, maxSurge=1), "maxSurge: Invalid value: 1: may not be set"),
        (rolling(maxUnavailable=0, maxSurge="0%"), "maxUnavailable: Required value: cannot be 0"),
        (rolling(maxUnavailable=1, maxSurge="abc"), "a valid percent string"),
        (rolling(rollingUpdateType="InPlaceIfPossible", maxSurge=1), "must be 0 for InPlaceIfPossible type"),
        (rolling(partition="101%"), "must not be greater than 100%"),
        (rolling(partition="x"), "a valid percent string"),
        ({"lifecycle": {"inPlaceUpdate": {"labelsHandler": {"a": "b"}}}}, "spec.lifecycle.inPlaceUpdate: Forbidden"),
        ({"template": template(activeDeadlineSeconds=5)}, "activeDeadlineSeconds"),
    ],
)  # fmt: skip
def test_an_invalid_spec_is_refused(version: str, spec: Json, message: str) -> None:
    refused = write(daemon_set(version, **spec))
    assert refused.code == 422
    assert message in refused.message


@pytest.mark.behaviour("DS-13")
def test_a_partition_has_no_upper_bound_as_a_number() -> None:
    assert write(daemon_set(**rolling(partition=10_000))).obj is not None


@pytest.mark.behaviour("DS-12", "DS-5")
def test_surging_with_max_unavailable_is_refused() -> None:
    refused = write(daemon_set(ALPHA, **rolling(rollingUpdateType="Surging", maxUnavailable=1)))
    assert "may not be set when maxUnavailable is non-zero" in refused.message


@pytest.mark.behaviour("DS-84")
@pytest.mark.parametrize(
    ("spec", "warning"),
    [
        ({"burstReplicas": "x"}, "250 is used instead"),
        ({"burstReplicas": -1}, "250 is used instead"),
        ({"burstReplicas": 0}, "no Pod is ever created"),
        ({"lifecycle": {"preNormal": {"labelsHandler": {"a": "b"}}}}, "has no effect"),
        ({"lifecycle": {"preDelete": {}}}, "it has no effect"),
        ({"updateStrategy": {"type": "OnDelete", "rollingUpdate": {"paused": True}}}, "has no effect"),
        (rolling(selector=UNREADABLE), "no Pod is updated"),
    ],
)  # fmt: skip
def test_likely_mistakes_that_openkruise_admits_get_a_warning(spec: Json, warning: str) -> None:
    found = write(daemon_set(**spec))
    assert found.obj is not None, found.message
    assert any(warning in one for one in found.warnings)


@pytest.mark.behaviour("DS-82")
def test_a_native_manifest_is_admitted_with_another_api_version() -> None:
    """The example of Kubernetes' documentation."""
    resources = {"limits": {"memory": "200Mi"}}
    mounts = [{"name": "varlog", "mountPath": "/var/log"}]
    pod = template(
        tolerations=[{"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}],
        containers=[{"name": "fluentd", "image": "fluentd:v5", "resources": resources, "volumeMounts": mounts}],
        terminationGracePeriodSeconds=30,
        volumes=[{"name": "varlog", "hostPath": {"path": "/var/log"}}],
    )
    for version in (ALPHA, BETA):
        found = write(daemon_set(version, template=pod, **rolling(maxUnavailable="10%", maxSurge=0)))
        assert found.obj is not None, found.message
        assert not found.warnings


@pytest.mark.behaviour("DS-1", "DS-2", "DS-3")
def test_progressive_creation_is_a_field_in_one_version_and_an_annotation_in_the_other() -> None:
    old = daemon_set(ALPHA, annotations={PROGRESSIVE: "true"})
    new = convert(old, BETA)
    assert new["spec"]["scaleStrategy"] == {"partitionedScaling": True}
    assert new["metadata"]["annotations"] == {PROGRESSIVE: "true"}
    assert convert(new, ALPHA) == old
    off = {**new, "spec": {**new["spec"], "scaleStrategy": {"partitionedScaling": False}}}
    seen = convert(off, ALPHA)
    assert PROGRESSIVE not in seen["metadata"]["annotations"]
    assert "scaleStrategy" not in seen["spec"]
    back = convert(seen, BETA)
    assert not back["spec"].get("scaleStrategy", {}).get("partitionedScaling")


@pytest.mark.behaviour("DS-1")
@pytest.mark.parametrize("value", ["True", "1", "false", ""])
def test_other_annotation_values_have_no_effect(value: str) -> None:
    old = daemon_set(ALPHA, annotations={PROGRESSIVE: value})
    new = convert(old, BETA)
    assert "scaleStrategy" not in new["spec"]
    assert convert(new, ALPHA) == old


@pytest.mark.behaviour("DS-1", "DS-2")
def test_the_hash_in_the_status_has_a_name_in_each_version() -> None:
    old = {**daemon_set(ALPHA), "status": {"daemonSetHash": "abc", "numberReady": 3}}
    new = convert(old, BETA)
    assert new["status"] == {"updateRevision": "abc", "numberReady": 3}
    assert convert(new, ALPHA) == old


@pytest.mark.behaviour("DS-79")
def test_columns_match_openkruise() -> None:
    for version in DAEMON_SET.versions:
        narrow = [one.name for one in version.columns if not one.priority]
        wide = [one.name for one in version.columns if one.priority]
        assert narrow == ["DESIRED", "CURRENT", "READY", "UP-TO-DATE", "AVAILABLE", "AGE"]
        assert wide == ["CONTAINERS", "IMAGES", "DESIREDNUMBER", "CURRENTNUMBER", "UPDATEDNUMBERSCHEDULED"]
