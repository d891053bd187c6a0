"""A platform engineer spreads one workload over subsets of the nodes (U-74)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.scenarios.world import World, eventually

_TEMPLATE = """
apiVersion: apps.kruise.io/v1beta1
kind: UnitedDeployment
metadata: {name: web}
spec:
  replicas: 4
  selector: {matchLabels: {app: web}}
  template:
    %s:
      metadata: {labels: {app: web}}
      spec:
        %s
        selector: {matchLabels: {app: web}}
        template:
          metadata: {labels: {app: web}}
          spec: {terminationGracePeriodSeconds: 1, containers: [{name: main, image: "nginx:1.25"}]}
  topology:
"""
UNITED = (
    _TEMPLATE
    + """\
    subsets:
    - {name: one, replicas: 1}
    - {name: two, patch: {metadata: {labels: {tier: gold}}}}
"""
)
KINDS = {
    "deploymentTemplate": ("deployments.apps", ""),
    "cloneSetTemplate": ("clonesets.apps.kruise.io", ""),
    "statefulSetTemplate": ("statefulsets.apps", "serviceName: web"),
    "advancedStatefulSetTemplate": ("statefulsets.apps.kruise.io", "serviceName: web"),
}


def subsets(world: World, kind: str) -> dict[str, dict[str, Any]]:
    return {one["metadata"]["labels"]["apps.kruise.io/subset-name"]: one for one in world.list(kind)}


def counts(world: World, kind: str) -> dict[str, int]:
    return {name: one["spec"]["replicas"] for name, one in subsets(world, kind).items()}


def status(world: World) -> dict[str, Any]:
    found: dict[str, Any] = world.get("uniteddeployment", "web").get("status", {})
    return found


def ready(world: World, replicas: int) -> bool:
    found = status(world)
    return (found.get("readyReplicas"), found.get("updatedReadyReplicas"), found.get("replicas")) == (replicas,) * 3


def replace(world: World, path: str, value: Any) -> None:
    world.patch("uniteddeployment", "web", [{"op": "replace", "path": path, "value": value}])


@pytest.mark.behaviour("UD-1", "UD-2", "UD-25", "UD-26", "UD-27", "UD-28", "UD-29")
@pytest.mark.behaviour("UD-48", "UD-49", "UD-63", "UD-65", "UD-64")
@pytest.mark.parametrize("template", KINDS)
def test_one_workload_per_subset_follows_replicas_and_template(world: World, template: str) -> None:
    kind, more = KINDS[template]
    world.apply(UNITED % (template, more))
    eventually(lambda: counts(world, kind) == {"one": 1, "two": 3}, "both subsets have their share")
    eventually(lambda: ready(world, 4), "all Pods are ready", 120)
    made = subsets(world, kind)
    assert made["two"]["spec"]["template"]["metadata"]["labels"]["tier"] == "gold"
    assert made["one"]["metadata"]["name"].startswith("web-one-")
    assert world.columns("uniteddeployment", "web")[1:5] == ["4", "4", "4", "4"]
    world.kubectl("scale", "uniteddeployment", "web", "-n", world.namespace, "--replicas=6")
    eventually(lambda: counts(world, kind) == {"one": 1, "two": 5}, "the rest grows")
    before = status(world)["updatedRevision"]
    replace(world, f"/spec/template/{template}/spec/template/spec/containers/0/image", "nginx:1.26")
    eventually(lambda: status(world)["updatedRevision"] != before, "the change is observed")
    eventually(lambda: ready(world, 6), "all Pods are updated and ready", 180)
    found = status(world)
    assert found["currentRevision"] == found["updatedRevision"]
    assert [one["name"] for one in found["subsetStatuses"]] == ["one", "two"]


@pytest.mark.behaviour("UD-20", "UD-33", "UD-41", "UD-68")
def test_a_removed_subset_is_deleted_and_impossible_shares_change_nothing(world: World) -> None:
    world.apply(UNITED % ("deploymentTemplate", ""))
    eventually(lambda: counts(world, "deployments.apps") == {"one": 1, "two": 3}, "both subsets have their share")
    replace(world, "/spec/topology/subsets", [{"name": "two"}, {"name": "three"}])
    eventually(
        lambda: counts(world, "deployments.apps") == {"two": 2, "three": 2}, "one Pod is deleted, three are created"
    )
    replace(world, "/spec/topology/subsets", [{"name": "two", "replicas": 4}, {"name": "three", "replicas": 0}])
    eventually(lambda: counts(world, "deployments.apps") == {"two": 4, "three": 0}, "the shares are as requested")
    world.kubectl("scale", "uniteddeployment", "web", "-n", world.namespace, "--replicas=3")

    def told() -> bool:
        return any(event["reason"] == "Failed SpecifySubsetReplicas" for event in world.list("events"))

    eventually(told, "a condition reports that the shares cannot be met")
    assert counts(world, "deployments.apps") == {"two": 4, "three": 0}


@pytest.mark.behaviour("PM-93", "UD-47")
def test_a_partition_holds_a_subset_back_until_it_is_lowered(world: World) -> None:
    manifest = UNITED % ("cloneSetTemplate", "")
    held = "  updateStrategy: {manualUpdate: {partitions: {two: 9}}}\n  revisionHistoryLimit: 0\n"
    world.apply(manifest + held)
    eventually(lambda: ready(world, 4), "all Pods are ready", 120)
    replace(world, "/spec/template/cloneSetTemplate/spec/template/spec/containers/0/image", "nginx:1.26")
    eventually(lambda: status(world).get("updatedReadyReplicas") == 1, "one subset is updated", 120)
    found = subsets(world, "clonesets.apps.kruise.io")
    assert found["two"]["spec"]["updateStrategy"]["rollingUpdate"]["partition"] == 3
    assert status(world)["currentRevision"] != status(world)["updatedRevision"]
    replace(world, "/spec/updateStrategy/manualUpdate/partitions", {"two": 0})
    eventually(lambda: ready(world, 4), "all Pods are updated and ready", 120)

    def own() -> list[str]:
        revisions = world.list("controllerrevisions.apps", "-l", "app=web")
        return [
            one["metadata"]["name"]
            for one in revisions
            if one["metadata"]["ownerReferences"][0]["kind"] == "UnitedDeployment"
        ]

    eventually(lambda: len(own()) == 1, "the old revision is deleted")


RESERVING = (
    _TEMPLATE
    + """\
    scheduleStrategy:
      type: Adaptive
      adaptive: {rescheduleCriticalSeconds: 1, unschedulableDuration: 2, reserveUnschedulablePods: true}
    subsets:
    - name: one
      maxReplicas: 2
      nodeSelectorTerm: {matchExpressions: [{key: room-for-$ns, operator: In, values: ["yes"]}]}
    - {name: two}
"""
)
RESERVED = "apps.kruise.io/united-deployment-reserved-pod"


@pytest.mark.behaviour("UD-39", "UD-40", "UD-56", "UD-57", "UD-63", "UD-64")
@pytest.mark.parametrize("template", ["deploymentTemplate", "cloneSetTemplate"])
def test_unschedulable_pods_are_kept_and_replaced_until_they_run(world: World, template: str) -> None:
    kind = KINDS[template][0]
    world.apply(RESERVING % (template, ""))
    eventually(lambda: counts(world, kind) == {"one": 2, "two": 4}, "two Pods more replace two")
    eventually(lambda: status(world).get("readyReplicas") == 4, "four Pods are ready", 120)

    def working() -> bool:
        found = status(world)
        return (found.get("replicas"), found.get("reservedPods")) == (4, 2)

    eventually(working, "the status tells them apart")
    assert len(world.list("pods", "-l", f"{RESERVED}=true")) == 2
    assert len(world.list("pods", "-l", status(world)["labelSelector"])) == 4
    node = world.list("nodes")[0]["metadata"]["name"]
    world.kubectl("label", "node", node, f"room-for-{world.namespace}=yes")
    eventually(lambda: counts(world, kind) == {"one": 2, "two": 2}, "they run, so their replacements are deleted", 120)
    eventually(lambda: ready(world, 4), "four Pods are ready", 120)
    eventually(lambda: not world.list("pods", "-l", f"{RESERVED}=true"), "no Pod is reserved any more")

    def schedulable() -> bool:
        entry = status(world)["subsetStatuses"][0]
        return (entry["conditions"][0]["status"], entry.get("reservedPods", 0)) == ("True", 0)

    eventually(schedulable, "the subset takes Pods again")


@pytest.mark.behaviour("UD-58", "UD-62")
def test_a_rollout_skips_unschedulable_pods(world: World) -> None:
    world.apply(RESERVING % ("deploymentTemplate", ""))
    eventually(lambda: counts(world, "deployments.apps") == {"one": 2, "two": 4}, "two Pods replace two")
    eventually(lambda: status(world).get("readyReplicas") == 4, "four Pods are ready", 120)
    replace(world, "/spec/template/deploymentTemplate/spec/template/spec/containers/0/image", "nginx:1.26")

    def everywhere() -> bool:
        pods = world.pods("-l", "app=web")
        return {one["spec"]["containers"][0]["image"] for one in pods} == {"nginx:1.26"} and len(pods) == 6

    eventually(everywhere, "the unschedulable Pods are new too", 120)
    eventually(lambda: status(world)["currentRevision"] == status(world)["updatedRevision"], "it is rolled out", 120)
    eventually(lambda: status(world).get("readyReplicas") == 4, "four Pods are ready", 120)


@pytest.mark.behaviour("UD-50")
def test_a_stateful_set_recovers_from_pods_that_never_became_ready(world: World) -> None:
    broken = UNITED.replace('image: "nginx:1.25"', 'image: "nginx:1.25", readinessProbe: {exec: {command: ["false"]}}')
    world.apply(broken % ("statefulSetTemplate", "serviceName: web"))
    eventually(lambda: len(world.list("pods", "-l", "app=web")) == 2, "the first Pod of each subset waits", 120)
    world.apply(UNITED % ("statefulSetTemplate", "serviceName: web"))
    eventually(lambda: ready(world, 4), "all Pods are updated and ready", 120)


@pytest.mark.behaviour("UD-32")
def test_objects_of_a_predecessor_are_adopted(world: World) -> None:
    world.apply(UNITED % ("deploymentTemplate", ""))
    eventually(lambda: ready(world, 4), "all Pods are ready", 120)
    kind = "deployments.apps"
    before = {name: one["metadata"]["uid"] for name, one in subsets(world, kind).items()}
    pods = world.uids("-l", "app=web")
    world.kubectl("delete", "uniteddeployment", "web", "-n", world.namespace, "--cascade=orphan")
    world.apply(UNITED % ("deploymentTemplate", ""))

    def adopted() -> bool:
        uid = world.get("uniteddeployment", "web")["metadata"]["uid"]
        found = world.list(kind)
        return all([one["uid"] for one in set_["metadata"].get("ownerReferences", ())] == [uid] for set_ in found)

    eventually(adopted, "the workloads have a new owner")
    eventually(lambda: ready(world, 4), "all Pods are ready", 120)
    assert {name: one["metadata"]["uid"] for name, one in subsets(world, kind).items()} == before
    assert world.uids("-l", "app=web") == pods


@pytest.mark.behaviour("UD-64")
def test_an_autoscaler_respects_its_minimum_and_maximum(world: World) -> None:
    def autoscaled(*, least: int, most: int, wanted: int) -> None:
        world.autoscale("UnitedDeployment", least=least, most=most, wanted=wanted)
        shares = {"one": 1, "two": wanted - 1}
        eventually(lambda: counts(world, "deployments.apps") == shares, "the rest follows", 120)
        eventually(lambda: ready(world, wanted), f"{wanted} Pods are ready", 120)

    world.apply(UNITED % ("deploymentTemplate", ""))
    eventually(lambda: ready(world, 4), "all Pods are ready", 120)
    autoscaled(least=6, most=7, wanted=6)
    autoscaled(least=2, most=5, wanted=5)


@pytest.mark.behaviour("UD-19", "UD-23")
def test_a_protected_object_is_not_deleted_while_it_has_replicas(world: World) -> None:
    world.apply(UNITED % ("deploymentTemplate", ""))
    label = "policy.kruise.io/delete-protection"
    world.kubectl("label", "uniteddeployment", "web", "-n", world.namespace, f"{label}=Cascading")
    refused = world.kubectl("delete", "uniteddeployment", "web", "-n", world.namespace, check=False)
    assert refused.returncode != 0
    assert f"{label}=Cascading and replicas 4>0" in refused.stderr
    replace(world, "/spec/topology/subsets", [{"name": "two"}])
    world.kubectl("scale", "uniteddeployment", "web", "-n", world.namespace, "--replicas=0")
    world.kubectl("delete", "uniteddeployment", "web", "-n", world.namespace)
