"""The generated ValidatingAdmissionPolicies follow the table, and a real API server applies them."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from app.features.deletionprotection.protected_kinds import Cascading, load_table, parse_table
from app.generate.chart import admission_policies
from tests.cluster.controlplane import ControlPlane
from tests.features.deletionprotection.reviews import FORBIDDEN, LABEL, OF_SLICES
from tests.scenarios.world import eventually

SERVICE: dict[str, Any] = {"kind": "Service", "apiVersion": "v1", "spec": {"ports": [{"port": 80}]}}
TEMPLATE: dict[str, Any] = {
    "metadata": {"labels": {"app": "web"}},
    "spec": {"containers": [{"name": "web", "image": "nginx:1.25"}]},
}
DEPLOYMENT: dict[str, Any] = {
    "kind": "Deployment",
    "apiVersion": "apps/v1",
    "spec": {"selector": {"matchLabels": {"app": "web"}}, "template": TEMPLATE},
}


@pytest.mark.behaviour("DP-8", "DP-20")
def test_policies_follow_the_table() -> None:
    table = load_table()
    always, always_binding, replicas, replicas_binding = admission_policies(table)
    assert [rule["resources"][0] for rule in always["spec"]["matchConstraints"]["resourceRules"]] == [
        kind.resource for kind in table
    ]
    assert [rule["resources"][0] for rule in replicas["spec"]["matchConstraints"]["resourceRules"]] == [
        "deployments",
        "replicasets",
        "statefulsets",
        *(kind.resource for kind in OF_SLICES if kind.cascading is Cascading.REPLICAS),
    ]
    for policy, binding in ((always, always_binding), (replicas, replicas_binding)):
        assert binding["spec"]["policyName"] == policy["metadata"]["name"]
        assert binding["spec"]["validationActions"] == ["Deny", "Audit"]
        for rule in policy["spec"]["matchConstraints"]["resourceRules"]:
            assert rule["operations"] == ["DELETE"]


def test_without_a_scalable_kind_there_is_one_policy() -> None:
    row = "kinds: [{kind: Gadget, group: example.com, resource: gadgets, versions: [v1]}]"
    assert len(admission_policies(parse_table(row, "t.yaml"))) == 2


DELETE_PROBE = ("delete", "service", "probe", "-n", "default", "--dry-run=server")


@pytest.fixture(scope="module")
def guarded() -> Iterator[ControlPlane]:
    with ControlPlane() as control_plane:
        made = control_plane.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(admission_policies(load_table())))
        assert made.stdout.count("created") == 4
        # A policy takes effect a moment after its creation.
        probe = {**SERVICE, "metadata": {"name": "probe", "labels": {LABEL: "Always"}}}
        control_plane.kubectl("apply", "-n", "default", "-f", "-", stdin=json.dumps(probe))
        eventually(
            lambda: control_plane.kubectl(*DELETE_PROBE, check=False).returncode != 0, "the policies are in force", 30
        )
        yield control_plane


@pytest.mark.controlplane
@pytest.mark.parametrize(
    ("manifest", "value", "spec", "text"),
    [
        pytest.param(SERVICE, "Always", {}, "Always", id="Service Always"),
        pytest.param(SERVICE, "Cascading", {}, None, id="Service Cascading"),
        pytest.param(SERVICE, None, {}, None, id="Service without the label"),
        pytest.param(DEPLOYMENT, "Always", {"replicas": 0}, "Always", id="Deployment Always"),
        pytest.param(DEPLOYMENT, "Cascading", {"replicas": 2}, "Cascading and replicas 2>0", id="Deployment Cascading"),
        pytest.param(DEPLOYMENT, "Cascading", {"replicas": 0}, None, id="Deployment Cascading, scaled to 0"),
        pytest.param(DEPLOYMENT, "sometimes", {"replicas": 2}, None, id="Deployment, unknown value"),
    ],
)
@pytest.mark.behaviour("DP-8", "DP-20", "DP-29", "DP-30", "DP-50")
def test_the_api_server_alone_refuses_simple_cases(
    guarded: ControlPlane, manifest: dict[str, Any], value: str | None, spec: dict[str, Any], text: str | None
) -> None:
    name = f"t-{uuid.uuid4().hex[:8]}"
    metadata = {"name": name, "namespace": "default", "labels": {LABEL: value} if value else {}}
    body = {**manifest, "metadata": metadata, "spec": {**manifest["spec"], **spec}}
    guarded.kubectl("create", "-f", "-", stdin=json.dumps(body))
    deleted = guarded.kubectl("delete", manifest["kind"], name, "-n", "default", check=False)
    if text is None:
        assert deleted.returncode == 0, deleted.stderr
        return
    assert deleted.returncode != 0
    assert FORBIDDEN + text in deleted.stderr
    assert "is forbidden: ValidatingAdmissionPolicy" in deleted.stderr
    # DP-10: without the label, deletion is allowed.
    guarded.kubectl("label", manifest["kind"], name, "-n", "default", f"{LABEL}-")
    guarded.kubectl("delete", manifest["kind"], name, "-n", "default")
