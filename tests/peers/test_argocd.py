"""Argo CD reports the health of our objects correctly in every phase of a rollout, with deploy/argocd/health.yaml and
with its own checks."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from tests.peers import programs
from tests.scenarios.test_jobs import broadcast, cron
from tests.scenarios.world import ROOT, World, eventually

pytestmark = pytest.mark.peers

OURS = yaml.safe_load((ROOT / "deploy/argocd/health.yaml").read_text("utf-8"))["data"]
GATE = "example.com/let"
VERSIONS = ("v1beta1", "v1alpha1")
POD = f"""
          metadata: {{labels: {{app: web}}}}
          spec:
            terminationGracePeriodSeconds: 1
            readinessGates: [{{conditionType: {GATE}}}]
            containers: [{{name: main, image: "nginx:1.25"}}]
"""
WORKLOAD = """
apiVersion: apps.kruise.io/v1beta1
kind: %s
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  %s
"""
PLAIN = f"template:{POD}"
UNITED = f"""replicas: 3
  topology: {{subsets: [{{name: one}}]}}
  template:
    cloneSetTemplate:
      metadata: {{labels: {{app: web}}}}
      spec:
        selector: {{matchLabels: {{app: web}}}}
        updateStrategy: {{type: RollingUpdate, rollingUpdate: {{paused: false}}}}
        template:{POD}"""
#: Kind → the rest of the spec, the path of its Pod template, and the field that pauses it.
KINDS = {
    "CloneSet": (f"replicas: 3\n  {PLAIN}", "/spec/template", "/spec/updateStrategy/rollingUpdate/paused"),
    "StatefulSet": (f"replicas: 3\n  {PLAIN}", "/spec/template", "/spec/updateStrategy/rollingUpdate/paused"),
    "DaemonSet": (PLAIN, "/spec/template", "/spec/updateStrategy/rollingUpdate/paused"),
    "UnitedDeployment": (
        UNITED,
        "/spec/template/cloneSetTemplate/spec/template",
        "/spec/template/cloneSetTemplate/spec/updateStrategy/rollingUpdate/paused",
    ),
}
#: Health that Argo CD reports in each phase of a rollout.
PHASES = {
    "starting": "Progressing",
    "running": "Healthy",
    "updating": "Progressing",
    "partition reached": "Suspended",
    "paused": "Suspended",
    "last Pod": "Progressing",
    "updated": "Healthy",
    "refused": "Degraded",
}
#: Results that differ under Argo CD's own checks. docs/works-with.md summarizes them.
THEIRS: dict[tuple[str, str], dict[str, str]] = {
    ("CloneSet", "v1alpha1"): {
        "starting": "Suspended",
        "updating": "Suspended",
        "last Pod": "Degraded",
        "refused": "Healthy",
    },
    ("CloneSet", "v1beta1"): {
        "starting": "Suspended",
        "updating": "Suspended",
        "paused": "Progressing",
        "last Pod": "Suspended",
        "updated": "Suspended",
        "refused": "Progressing",
    },
    ("StatefulSet", "v1alpha1"): dict.fromkeys(PHASES, "Suspended"),
    ("StatefulSet", "v1beta1"): {
        "starting": "Suspended",
        "updating": "Suspended",
        "partition reached": "Progressing",
        "last Pod": "Degraded",
        "refused": "Healthy",
    },
    ("DaemonSet", "v1alpha1"): {"starting": "Degraded", "partition reached": "Progressing"},
    ("DaemonSet", "v1beta1"): {"starting": "Degraded", "partition reached": "Progressing"},
}


def healths(objects: list[dict[str, Any]], script: str = "") -> list[str]:
    """Return the objects' health in Argo CD, according to this script or its own checks."""
    asked = "".join(json.dumps({"object": one, "script": script}) for one in objects)
    return [json.loads(line).get("status", "none") for line in programs.run("argocd", asked).splitlines()]


def patch(world: World, kind: str, *changes: tuple[str, Any]) -> None:
    operations = json.dumps([{"op": "add", "path": path, "value": value} for path, value in changes])
    world.kubectl("patch", resource(kind), "web", "-n", world.namespace, "--type=json", "-p", operations)


def resource(kind: str, version: str = "v1beta1") -> str:
    return f"{kind.lower()}s.{version}.apps.kruise.io"


def counts(obj: dict[str, Any]) -> tuple[int, int] | None:
    """Return the updated and the available Pods once the controller has observed the change."""
    status = obj.get("status", {})
    if status.get("observedGeneration") != obj["metadata"]["generation"]:
        return None
    updated = status.get("updatedReplicas", status.get("updatedNumberScheduled", 0))
    ready = "readyReplicas" if obj["kind"] == "UnitedDeployment" else "availableReplicas"
    return updated, status.get(ready, status.get("numberAvailable", 0))


def let_pods_be_ready(world: World, selector: str = "app=web") -> None:
    opened = json.dumps({"status": {"conditions": [{"type": GATE, "status": "True"}]}})
    for pod in world.list("pods", "-l", selector):
        if not any(one["type"] == GATE for one in pod["status"].get("conditions", [])):
            name = pod["metadata"]["name"]
            arguments = ("-n", world.namespace, "--subresource=status", "--type=strategic", "-p", opened)
            world.kubectl("patch", "pod", name, *arguments, check=False)


@pytest.mark.parametrize("kind", list(KINDS))
def test_each_phase_of_a_rollout_is_reported(world: World, kind: str) -> None:
    more, template, paused = KINDS[kind]
    seen: dict[str, dict[str, dict[str, Any]]] = {version: {} for version in VERSIONS}

    def keep(phase: str, updated: int, available: int, *, letting: bool = False) -> None:
        """Save the object in both versions once it has this many updated and available Pods."""

        def reached() -> bool:
            if letting:
                let_pods_be_ready(world)
            found = counts(world.get(resource(kind), "web"))
            assert found == (updated, available)
            return True

        eventually(reached, f"{phase}: {updated} updated, {available} available", 40)
        for version in VERSIONS:
            seen[version][phase] = world.get(resource(kind, version), "web")

    partition = "/spec/updateStrategy/rollingUpdate/partition"
    held: tuple[tuple[str, Any], ...] = ((partition, 1),)
    released: tuple[tuple[str, Any], ...] = ((partition, 0),)
    if kind == "UnitedDeployment":
        held = (("/spec/updateStrategy", {"type": "Manual", "manualUpdate": {"partitions": {"one": 1}}}),)
        released = (("/spec/updateStrategy/manualUpdate/partitions", {"one": 0}),)
    image = f"{template}/spec/containers/0/image"
    limit = "/spec/updateStrategy/rollingUpdate/maxUnavailable"
    if kind == "UnitedDeployment":
        limit = "/spec/template/cloneSetTemplate/spec/updateStrategy/rollingUpdate/maxUnavailable"

    created = yaml.safe_load(WORKLOAD % (kind, more))
    if kind == "StatefulSet":
        created["spec"] |= {"serviceName": "web", "podManagementPolicy": "Parallel"}
    world.apply(yaml.safe_dump(created))
    keep("starting", 3, 0)
    keep("running", 3, 3, letting=True)
    patch(world, kind, *held, (limit, 1), (image, "nginx:1.26"))
    keep("updating", 1, 2)
    keep("partition reached", 2, 3, letting=True)
    patch(world, kind, (paused, True), *released)
    # A UnitedDeployment is paused in its template, which creates a revision that no Pod has yet.
    keep("paused", 0 if kind == "UnitedDeployment" else 2, 3)
    patch(world, kind, (paused, False))
    keep("last Pod", 3, 2)
    keep("updated", 3, 3, letting=True)
    if kind != "DaemonSet":  # it has no condition for failures
        quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "full"}, "spec": {}}
        quota["spec"] = {"hard": {"pods": "3"}}
        world.apply(json.dumps(quota))
        eventually(lambda: world.get("quota", "full").get("status", {}).get("used", {}).get("pods") == "3", "counted")
        patch(world, kind, ("/spec/replicas", 4))
        eventually(lambda: "True" in _failures(world.get(resource(kind), "web")), "the failure is reported", 40)
        for version in VERSIONS:
            seen[version]["refused"] = world.get(resource(kind, version), "web")

    expected = {phase: health for phase, health in PHASES.items() if phase in seen["v1beta1"]}
    key = f"resource.customizations.health.apps.kruise.io_{kind}"
    for version, phases in seen.items():
        objects = list(phases.values())
        assert dict(zip(phases, healths(objects, OURS[key]), strict=True)) == expected, version
        theirs = dict(zip(phases, healths(objects), strict=True))
        if kind == "UnitedDeployment":  # Argo CD has no check for it
            assert set(theirs.values()) == {"none"}
        else:
            assert theirs == {phase: THEIRS[kind, version].get(phase, health) for phase, health in expected.items()}


def test_a_rollout_past_its_deadline_is_degraded() -> None:
    late = {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded", "message": "timed out"}
    status = {"observedGeneration": 1, "replicas": 3, "updatedReplicas": 1, "conditions": [late]}
    clone_set = {"kind": "CloneSet", "metadata": {"generation": 1}, "spec": {"replicas": 3}, "status": status}
    assert healths([clone_set], OURS["resource.customizations.health.apps.kruise.io_CloneSet"]) == ["Degraded"]


def _failures(obj: dict[str, Any]) -> list[str]:
    conditions = obj.get("status", {}).get("conditions", [])
    return [one["status"] for one in conditions if one["type"].startswith(("Failed", "SubsetFailure"))]


def test_jobs_get_their_health_from_argo_cds_own_checks(world: World) -> None:
    world.apply(broadcast("runs", sleep=600))
    world.apply(broadcast("done"))
    world.apply(broadcast("late", "{type: Always, activeDeadlineSeconds: 1}", sleep=600))
    world.apply(broadcast("held", sleep=600) + "  paused: true\n")
    world.apply(cron("waits", "broadcastJobTemplate", "0 0 1 1 *"))
    world.apply(cron("stopped", "broadcastJobTemplate", "0 0 1 1 *") + "  paused: true\n")
    phases = {"runs": "running", "done": "completed", "late": "failed", "held": "paused"}
    for name, phase in phases.items():

        def reached(name: str = name, phase: str = phase) -> bool:
            status = world.get("broadcastjob", name).get("status", {})
            return status.get("phase") == phase and (phase != "running" or bool(status.get("active")))

        eventually(reached, f"{name} is {phase}", 40)
    eventually(lambda: "status" in world.get("advancedcronjob", "waits"), "the schedule is seen")
    for version in VERSIONS:
        jobs = [world.get(resource("BroadcastJob", version), name) for name in phases]
        assert healths(jobs) == ["Progressing", "Healthy", "Degraded", "Suspended"]
        crons = [world.get(resource("AdvancedCronJob", version), name) for name in ("waits", "stopped")]
        assert healths(crons) == ["Degraded", "Suspended"]
