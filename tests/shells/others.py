"""Cases of the controllers that own no Pods."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any, Final

from app.api import names
from app.api.names import KRUISE_POD_READY
from app.features.sidecarset.plan.missed_pods import SIDECARS_MISSING, message
from app.kube.clock import rfc3339
from app.kube.resources import CONFIGMAPS, NAMESPACES, NODES, PODS, SECRETS
from tests.kit.objects import workload_spec
from tests.shells.building import CLONESETS, SELECTOR, case_of, named, ours, owned, owned_pods, pod
from tests.shells.checks import Case, Edit, create, delete, patch, vanish, vanish_all
from tests.shells.world import World

Json = dict[str, Any]
NOW: Final = "2030-01-01T00:00:00Z"
AGAIN: Final = "deleted again, by its uid, until the cache shows the deletion"
BY_HAND: Final = {"shells.test/by-hand": "true"}
#: The annotation of Pods whose node has an agent.
AGENT: Final = "shells.test/agent"
ENDED: Final = {"terminated": {"exitCode": 0, "reason": "Completed", "finishedAt": NOW}}
VIRTUAL_NODE: Final = (NODES, {"metadata": {"name": "virtual", "labels": {"type": "virtual-kubelet"}}})
NODE_C: Final = {"metadata": {"name": "node-c"}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}}
SIDECARSETS = ours("SidecarSet")
NODE_IMAGES, PULL_JOBS, PULL_LISTS = ours("NodeImage"), ours("ImagePullJob"), ours("ImageListPullJob")
REQUESTS, MARKERS, NODE_PROBES = ours("ContainerRecreateRequest"), ours("PodProbeMarker"), ours("NodePodProbe")
DISTRIBUTIONS, BUDGETS = ours("ResourceDistribution"), ours("PodUnavailableBudget", "policy")
SPREADS, STATES, STATEFULSETS = ours("WorkloadSpread"), ours("PersistentPodState"), ours("StatefulSet")


def several(*edits: Edit) -> Edit:
    """Return an edit that makes all these edits before any cache shows one."""

    async def all_of_them(world: World) -> None:
        for edit in edits:
            await edit(world)

    return all_of_them


def readiness() -> Case:
    gates = [{"conditionType": KRUISE_POD_READY}]
    body = pod("web-0", {"shells.test/no-gate": "true"}, readinessGates=gates, nodeName="node-a")
    return case_of("pod-readiness-controller", [], {"created": create(PODS, body)})


def sidecarset() -> Case:
    def injected(name: str) -> Edit:
        async def edit(world: World) -> None:
            records = {
                one["metadata"]["name"]: {
                    "hash": one["metadata"]["annotations"][names.SIDECARSET_HASH],
                    "sidecarList": [one["spec"]["containers"][0]["name"]],
                    "updateTimestamp": NOW,
                }
                for one in world.objects(SIDECARSETS)
            }
            same = {each: {**record, "hash": "same"} for each, record in records.items()}
            annotations = {
                names.SIDECARSET_HASH: json.dumps(records),
                names.SIDECARSET_INJECTED_LIST: ",".join(records),
                names.SIDECARSET_HASH_WITHOUT_IMAGE: json.dumps(same),
            }
            images = {"main": "nginx:1", "shipper": "a:1", "tracer": "a:1"}
            containers = [{"name": each, "image": image} for each, image in images.items()]
            await create(PODS, pod(name, annotations, containers=containers))(world)

        return edit

    def sidecars(name: str, version: str, image: str, container: str = "shipper") -> Json:
        annotations = {names.SIDECARSET_HASH: version, names.SIDECARSET_HASH_WITHOUT_IMAGE: "same"}
        policies = {"shareVolumePolicy": {"type": "disabled"}, "upgradeStrategy": {"upgradeType": "ColdUpgrade"}}
        spec = {
            "selector": SELECTOR,
            "containers": [{"name": container, "image": image, **policies}],
            "updateStrategy": {"type": "RollingUpdate", "maxUnavailable": 1, "partition": 0},
            "revisionHistoryLimit": 100,
        }
        return named(name, spec, annotations=annotations)

    def update(version: str, image: str) -> Edit:
        return patch(SIDECARSETS, "logs", sidecars("logs", version, image))

    return case_of(
        "sidecarset-controller",
        [(SIDECARSETS, sidecars("logs", "one", "a:1")), (SIDECARSETS, sidecars("traces", "one", "a:1", "tracer"))],
        {
            "a Pod": injected("web-0"),
            "another Pod": injected("web-1"),
            "new image": update("two", "a:2"),
            "newer image": update("three", "a:3"),
            "the first image": update("one", "a:1"),
            "a shorter history": patch(SIDECARSETS, "logs", {"spec": {"revisionHistoryLimit": 1}}),
            "paused": patch(SIDECARSETS, "logs", {"spec": {"updateStrategy": {"paused": True}}}),
        },
        replaces=[SIDECARSETS],
    )


def repair() -> Case:
    async def missed(world: World) -> None:
        await owned_pods(CLONESETS, pod("web-0"), pod("web-1"))(world)
        world.play()
        condition = {"type": SIDECARS_MISSING, "status": "True", "message": message(["logs"]), "reason": "x"}
        for one in world.objects(PODS):
            if one["metadata"]["name"] == "web-0":
                world.set_condition(one, {**condition, "lastTransitionTime": None})

    sidecars = {"selector": SELECTOR, "containers": [{"name": "shipper", "image": "a:1"}]}
    return case_of(
        "sidecarset-repair",
        [(SIDECARSETS, named("logs", sidecars)), (CLONESETS, named("web", workload_spec(2)))],
        {"a Pod without its sidecar": missed},
        beside=replaced_pods,
    )


def replaced_pods(world: World) -> None:
    """Keep two Pods of the CloneSet."""
    pods, owners = world.objects(PODS), world.objects(CLONESETS)
    if owners and pods and len(pods) < 2:
        resource = world.server.collection(PODS)
        body = {"apiVersion": "v1", "kind": "Pod", **owned(pod("web-2"), owners[0])}
        body["metadata"] |= {"uid": world.server.api.core.new_uid(), "namespace": "default", "creationTimestamp": NOW}
        if "default/web-2" not in resource.objects:
            world.server.api.core.storage.create(resource, "default/web-2", body)


def launch_priority() -> Case:
    def barrier(key: str) -> Json:
        reference = {"configMapKeyRef": {"name": "web-0-barrier", "key": key}}
        return {"name": "KRUISE_CONTAINER_BARRIER", "valueFrom": reference}

    def status(*ready: str) -> Json:
        containers = [
            {"name": one, "ready": one in ready, "image": "i", "imageID": "", "restartCount": 0, "state": {}}
            for one in ("first", "second")
        ]
        all_ready = {"type": "ContainersReady", "status": str(len(ready) == 2)}
        return {"phase": "Pending", "conditions": [all_ready], "containerStatuses": containers}

    containers = [
        {"name": "first", "image": "i", "env": [barrier("p_2")]},
        {"name": "second", "image": "i", "env": [barrier("p_1")]},
    ]
    body = pod("web-0", BY_HAND, containers=containers, nodeName="node-a")
    gone = {"apiVersion": "v1", "kind": "Pod", "name": "web-0", "uid": "gone"}
    return case_of(
        "container-launch-priority-controller",
        [],
        {
            "created": create(PODS, {**body, "status": status()}),
            "the first is ready": patch(PODS, "web-0", {"status": status("first")}, subresource="status"),
            "all are ready": patch(PODS, "web-0", {"status": status("first", "second")}, subresource="status"),
            "another Pod of the name": several(
                patch(CONFIGMAPS, "web-0-barrier", {"metadata": {"ownerReferences": [gone]}}),
                vanish(PODS, "web-0"),
                create(PODS, {**body, "status": status()}),
            ),
        },
        decided_live=["DELETE configmaps", "PATCH configmaps"],
        careless={"PATCH configmaps": "the key is written again to check that it exists"},
        collected=["configmaps"],
    )


def end_container(world: World, one: Json, container: str) -> None:
    """End a container of a Pod."""
    statuses = [
        {**s, "state": ENDED, "ready": False} if s["name"] == container else s
        for s in one["status"]["containerStatuses"]
    ]
    world.set_status(PODS, one, containerStatuses=statuses)


def late_agent(world: World) -> None:
    """Carry out requests as a node agent that starts only after the first request has expired."""
    pods = {one["metadata"]["name"]: one for one in world.objects(PODS)}
    for one in world.objects(REQUESTS):
        owner = pods.get(one["spec"]["podName"])
        if owner is None or (one.get("status") or {}).get("completionTime"):
            continue
        annotations = owner["metadata"].get("annotations") or {}
        if AGENT in annotations:
            states = [{"name": each["name"], "phase": "Succeeded"} for each in one["spec"]["containers"]]
            world.set_status(REQUESTS, one, phase="Completed", completionTime=NOW, containerRecreateStates=states)
            end_container(world, owner, "side")
        elif one["metadata"]["creationTimestamp"] < rfc3339(world.clock.now() - timedelta(seconds=30)):
            world.set_status(REQUESTS, one, phase="Completed", completionTime=NOW)
            metadata = {**owner["metadata"], "annotations": {**annotations, AGENT: "true"}}
            world.store(PODS, {**owner, "metadata": metadata})


def terminator() -> Case:
    async def main_ends(world: World) -> None:
        for one in world.objects(PODS):
            by_hand = {**one, "metadata": {**one["metadata"], "annotations": BY_HAND}}
            end_container(world, by_hand, "main")

    def job_pod(name: str, env: dict[str, str], **spec: Any) -> Json:
        variables = [{"name": key, "value": value} for key, value in env.items()]
        containers = [{"name": "main", "image": "i"}, {"name": "side", "image": "i", "env": variables}]
        return pod(name, containers=containers, restartPolicy="Never", **spec)

    env = dict.fromkeys((names.ENV_TERMINATE_SIDECAR, names.ENV_TERMINATE_SIDECAR_IGNORE_EXIT_CODE), "true")
    virtual = job_pod("job-1", {names.ENV_TERMINATE_SIDECAR_WITH_IMAGE: "exit:1"}, nodeName="virtual")
    return case_of(
        "sidecarterminator-controller",
        [(PODS, job_pod("job-0", env)), VIRTUAL_NODE, (PODS, virtual)],
        {"the main container ends": main_ends},
        beside=late_agent,
        decided_live=["DELETE containerrecreaterequests"],
        counts={"stripped": "sidecars of every Pod are terminated"},
        rest=80.0,  # longer than until a request is checked
    )


def budget() -> Case:
    pods = owned_pods(CLONESETS, pod("web-0"), pod("web-1"))
    workload = named("web", workload_spec(2))
    return case_of(
        "podunavailablebudget-controller",
        [(CLONESETS, workload)],
        {
            "Pods": pods,
            "created": create(BUDGETS, named("web", {"selector": SELECTOR, "maxUnavailable": 1})),
            "changed": patch(BUDGETS, "web", {"spec": {"maxUnavailable": 2}}),
            "a Pod is deleted": delete(PODS, "web-0"),
            "the workload grows": patch(CLONESETS, "web", {"spec": {"replicas": 5}}),
            "another workload of the name": several(
                vanish_all(CLONESETS), vanish_all(PODS), create(CLONESETS, workload), pods
            ),
            "deleted": delete(BUDGETS, "web"),
        },
        counts={"foreign": "a budget counts every Pod that it selects"},
        replaces=[CLONESETS],
    )


def workload_spread() -> Case:
    def subset(name: str, **more: Any) -> Json:
        term = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["node-a"]}]}
        labels = {"metadata": {"labels": {"subset": name}}}
        return {"name": name, "requiredNodeSelectorTerm": term, "patch": labels, **more}

    spec = {
        "targetRef": {"apiVersion": CLONESETS.api_version, "kind": "CloneSet", "name": "web"},
        "subsets": [subset("fixed", maxReplicas=2), subset("elastic")],
        "scheduleStrategy": {"type": "Adaptive", "adaptive": {"rescheduleCriticalSeconds": 5}},
    }

    def unschedulable(name: str) -> Edit:
        record = json.dumps({"name": "web", "subset": "fixed"})
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "lastTransitionTime": NOW}
        body = pod(name, {**BY_HAND, names.MATCHED_WORKLOAD_SPREAD: record})
        return owned_pods(CLONESETS, {**body, "status": {"phase": "Pending", "conditions": [condition]}})

    return case_of(
        "workloadspread-controller",
        [(CLONESETS, named("web", workload_spec(3)))],
        {
            "Pods": owned_pods(CLONESETS, pod("web-0"), pod("web-1"), pod("web-2")),
            "created": create(SPREADS, named("web", spec)),
            "another number": patch(CLONESETS, "web", {"spec": {"replicas": 5}}),
            "a Pod that fits nowhere": several(delete(PODS, "web-0"), unschedulable("web-9")),
            "another Pod that fits nowhere": unschedulable("web-8"),
            "other subsets": patch(
                SPREADS, "web", {"spec": {"subsets": [subset("fixed", maxReplicas=1), subset("elastic")]}}
            ),
        },
        careless={"DELETE pods": "a changed Pod may have been scheduled"},
        relies_on_status=True,
        replaces=[CLONESETS],
    )


def persistent_pod_state() -> Case:
    annotations = {
        names.AUTO_GENERATE_PERSISTENT_POD_STATE: "true",
        names.REQUIRED_PERSISTENT_TOPOLOGY: "kubernetes.io/hostname",
    }
    owner = named("db", {**workload_spec(2), "serviceName": "db"}, annotations=annotations)
    return case_of(
        "persistentpodstate-controller",
        [(STATEFULSETS, owner)],
        {
            "Pods": owned_pods(STATEFULSETS, pod("db-0"), pod("db-1")),
            "another topology": patch(
                STATEFULSETS,
                "db",
                {"metadata": {"annotations": {names.REQUIRED_PERSISTENT_TOPOLOGY: "topology.kubernetes.io/zone"}}},
            ),
            "scaled down": several(patch(STATEFULSETS, "db", {"spec": {"replicas": 1}}), delete(PODS, "db-1")),
            "another workload of the name": several(
                vanish_all(STATEFULSETS), vanish_all(PODS), create(STATEFULSETS, owner)
            ),
            "no longer wanted": patch(STATEFULSETS, "db", {"metadata": {"annotations": dict.fromkeys(annotations)}}),
        },
        replaces=[STATEFULSETS],
        final=["changed: DELETE persistentpodstates"],  # an object that got another owner is kept
        careless={
            "PATCH persistentpodstates/status": "its own change of the spec is not awaited",
            "again: PATCH persistentpodstates": "its own change of the spec is not awaited",
            "again: DELETE persistentpodstates": "its own change of the spec is not awaited",
        },
    )


def pulled(world: World) -> None:
    """Pull the images in NodeImages, as agents would."""
    for one in world.objects(NODE_IMAGES):
        statuses: Json = {}
        for image, entry in (one["spec"].get("images") or {}).items():
            if image == "silent":
                continue
            tags = [
                {
                    "tag": tag["tag"],
                    "phase": "Succeeded",
                    "version": tag.get("version", 0),
                    "startTime": NOW,
                    "completionTime": NOW,
                }
                for tag in entry.get("tags") or ()
            ]
            statuses[image] = {"tags": tags}
        count = sum(len(entry["tags"]) for entry in statuses.values())
        status = {"imageStatuses": statuses, "desired": count, "succeeded": count, "failed": 0, "pulling": 0}
        present = {
            image: entry
            for image, entry in (one.get("status") or {}).get("imageStatuses", {}).items()
            if image != "silent"
        }
        if present != statuses:
            world.store(NODE_IMAGES, {**one, "status": status})


def node_image() -> Case:
    def image(name: str, created: str) -> Edit:
        policy = {"ttlSecondsAfterFinished": 5, "timeoutSeconds": 60, "backoffLimit": 1}
        tag = {"tag": "1", "version": 0, "createdAt": created, "pullPolicy": policy}
        return patch(NODE_IMAGES, "node-c", {"spec": {"images": {name: {"tags": [tag]}}}})

    return case_of(
        "nodeimage-controller",
        [],
        {
            "a node": create(NODES, NODE_C),
            "an image with a time to live": image("nginx", NOW),
            "an image that nobody pulls": image("silent", "2029-01-01T00:00:00Z"),
            "a label": patch(NODES, "node-c", {"metadata": {"labels": {"a": "b"}}}),
            "the node goes": delete(NODES, "node-c"),
        },
        beside=pulled,
        decided_live=["PATCH nodeimages"],
        careless={"again: PATCH nodeimages": "labels of the cached object, then of the live one"},
        replaces=[NODES],
    )


def pull_job() -> Case:
    images = [(NODE_IMAGES, named(name, {"images": {}})) for name in ("node-a", "node-b")]
    secret = {
        "metadata": {"name": "key"},
        "type": "kubernetes.io/dockerconfigjson",
        "data": {".dockerconfigjson": "e30="},
    }
    policy = {"type": "Always", "ttlSecondsAfterFinished": 30}
    spec = {
        "image": "nginx:1",
        "parallelism": 1,
        "completionPolicy": policy,
        "pullSecrets": ["key"],
        "selector": {"names": ["node-a", "node-b"]},
    }
    never = {**spec, "image": "nginx:3", "completionPolicy": {"type": "Never"}}
    return case_of(
        "imagepulljob-controller",
        [*images, (SECRETS, secret)],
        {
            "created": create(PULL_JOBS, named("pull", {**spec, "completionPolicy": {"type": "Always"}})),
            "one that never ends": create(PULL_JOBS, named("always", never)),
            "another image": patch(
                PULL_JOBS, "always", {"spec": {"image": "nginx:4", "selector": {"names": ["node-b"]}}}
            ),
            "another secret": patch(SECRETS, "key", {"data": {".dockerconfigjson": "e30K"}}),
            "deleted": delete(PULL_JOBS, "always"),
            "with a time to live": create(PULL_JOBS, named("short", {**spec, "image": "nginx:5"})),
        },
        beside=pulled,
        decided_live=["PATCH nodeimages", "PATCH secrets", "DELETE secrets"],
        ignored=r'"ttlSecondsAfterFinished":\d+,?',
        keeps={"PullSecrets._read": "for two seconds, until the next read"},
        overwrites={"annotation of secrets": "a copy has the annotations of its source"},
        replaces=[PULL_JOBS],
    )


def pull_list() -> Case:
    def ends(world: World) -> None:
        counts = {"desired": 1, "active": 0, "succeeded": 1, "failed": 0}
        for one in world.objects(PULL_JOBS):
            if not one.get("status"):
                world.set_status(PULL_JOBS, one, startTime=NOW, **counts, completionTime=NOW)

    spec = {"images": ["nginx:1", "nginx:2"], "completionPolicy": {"type": "Never"}, "selector": {"names": ["node-a"]}}
    done = {"type": "Always", "ttlSecondsAfterFinished": 20}
    return case_of(
        "imagelistpulljob-controller",
        [],
        {
            "created": create(PULL_LISTS, named("pull", spec)),
            "other images": patch(PULL_LISTS, "pull", {"spec": {"images": ["nginx:2", "nginx:3"]}}),
            "another selector": patch(PULL_LISTS, "pull", {"spec": {"selector": {"names": ["node-b"]}}}),
            "one that ends": create(PULL_LISTS, named("short", {**spec, "completionPolicy": done})),
        },
        beside=ends,
        replaces=[PULL_LISTS],
        careless={
            "PATCH imagelistpulljobs/status": "retried with the current status",
            "DELETE imagepulljobs": AGAIN,
            "DELETE imagelistpulljobs": AGAIN,
        },
    )


def recreate_request(name: str, **spec: Any) -> Edit:
    """Return a request for Pod web-0, as the webhook completes it."""

    async def edit(world: World) -> None:
        one = next(one for one in world.objects(PODS) if one["metadata"]["name"] == "web-0")
        labels = {names.CRR_ACTIVE: "true", names.CRR_NODE_NAME: "node-a", names.CRR_POD_UID: one["metadata"]["uid"]}
        (status,) = one["status"]["containerStatuses"]
        context = {"containerID": status["containerID"], "restartCount": status["restartCount"]}
        containers = [{"name": "main", "statusContext": context}]
        times = {"activeDeadlineSeconds": 30, "ttlSecondsAfterFinished": 20}
        body = named(name, {"podName": "web-0", "containers": containers, **times, **spec}, labels=labels)
        await create(REQUESTS, body)(world)

    return edit


def container_recreate() -> Case:
    async def recreating(world: World) -> None:
        states = [{"name": "main", "phase": "Recreating", "message": ""}]
        for one in world.objects(REQUESTS):
            world.set_status(REQUESTS, one, phase="Recreating", containerRecreateStates=states)

    async def completed(world: World) -> None:
        for one in world.objects(REQUESTS):
            world.set_status(REQUESTS, one, phase="Completed", completionTime=NOW)

    strategy = {"failurePolicy": "Fail", "unreadyGracePeriodSeconds": 5}
    return case_of(
        "containerrecreaterequest-controller",
        [(PODS, pod("web-0", readinessGates=[{"conditionType": KRUISE_POD_READY}]))],
        {
            "under way": several(
                recreate_request("again", strategy=strategy, activeDeadlineSeconds=None, ttlSecondsAfterFinished=None),
                recreating,
            ),
            "completed": completed,
            "nobody answers": recreate_request("silent"),
            "of a Pod that goes": several(recreate_request("late"), delete(PODS, "web-0")),
        },
        relies_on_status=True,
    )


def marker(name: str) -> Json:
    """Return a PodProbeMarker for all Pods that sets a condition, labels and annotations."""
    probe = {"exec": {"command": ["/check"]}, "periodSeconds": 5}
    policy = [
        {"state": "Succeeded", "labels": {name: "yes"}, "annotations": {name: "yes"}},
        {"state": "Failed", "labels": {name: "no"}},
    ]
    one = {
        "name": "healthy",
        "containerName": "main",
        "probe": probe,
        "podConditionType": f"example.com/{name}",
        "markerPolicy": policy,
    }
    return named(name, {"selector": SELECTOR, "probes": [one]})


def probed(state: str) -> Edit:
    """Write this probe result, as agents would."""

    async def edit(world: World) -> None:
        now = rfc3339(world.clock.now() + timedelta(seconds=5))
        result = {"state": state, "lastProbeTime": now, "lastTransitionTime": now, "message": state}
        other = {"name": "other", "namespace": "default", "uid": "other", "probeStates": []}
        for one in world.objects(NODE_PROBES):
            statuses = [
                {key: entry[key] for key in ("name", "namespace", "uid")}
                | {"probeStates": [{"name": probe["name"], **result} for probe in entry["probes"]]}
                for entry in one["spec"].get("podProbes") or ()
            ]
            world.store(NODE_PROBES, {**one, "status": {"podProbeStatuses": [other, *statuses]}})

    return edit


async def conditioned(world: World) -> None:
    """Set the marker's condition on the Pods."""
    for one in world.objects(PODS):
        world.set_condition(one, {"type": "example.com/idle", "status": "True", "lastTransitionTime": NOW})


def pod_probe_marker() -> Case:
    nodes = [(NODE_PROBES, named(name, {})) for name in ("node-a", "node-b")]
    other = marker("idle")["spec"]
    other["probes"][0]["probe"]["periodSeconds"] = 7
    other["probes"][0]["markerPolicy"] = [{"state": "Succeeded", "labels": {"idle": "very"}}]
    return case_of(
        "podprobemarker-controller",
        [*nodes, VIRTUAL_NODE, (PODS, pod("web-0"))],
        {
            "a serverless Pod": create(PODS, pod("serverless", nodeName="virtual")),
            "created": create(MARKERS, marker("idle")),
            "the Pod has the condition": conditioned,
            "another Pod": create(PODS, pod("web-1")),
            "other labels": patch(MARKERS, "idle", {"spec": other}),
            "another selector": patch(MARKERS, "idle", {"spec": {"selector": {"matchLabels": {"app": "none"}}}}),
            "the former selector": patch(MARKERS, "idle", {"spec": {"selector": SELECTOR}}),
            "deleted": delete(MARKERS, "idle"),
        },
        decided_live=["PATCH nodepodprobes"],
        replaces=[MARKERS],
        careless={"PATCH pods": "the same marks again"},
    )


def pod_probe(which: Json, probe: Json) -> Json:
    """Return the entry of a Pod in a NodePodProbe, with one probe."""
    probes = [{"name": "idle#healthy", "containerName": "main", "probe": probe}]
    metadata = which["metadata"]
    return {
        "name": metadata["name"],
        "namespace": "default",
        "uid": metadata["uid"],
        "IP": "10.0.0.1",
        "probes": probes,
    }


def node_pod_probe() -> Case:
    async def probes(world: World) -> None:
        (one,) = (one for one in world.objects(NODE_PROBES) if one["metadata"]["name"] == "node-a")
        entries = [pod_probe(which, {"exec": {"command": ["/check"]}}) for which in world.objects(PODS)]
        world.store(NODE_PROBES, {**one, "spec": {"podProbes": entries}})

    return case_of(
        "nodepodprobe-controller",
        [(MARKERS, marker("idle")), (PODS, pod("web-0")), (PODS, pod("web-1"))],
        {
            "a node": create(NODES, NODE_C),
            "probes": probes,
            "found well": probed("Succeeded"),
            "found ill": probed("Failed"),
            "another Pod of the name": several(vanish(PODS, "web-0"), create(PODS, pod("web-0"))),
            "its probes": probes,
            "the Pod goes": delete(PODS, "web-0"),
            "the node goes": delete(NODES, "node-c"),
        },
        decided_live=["PATCH nodepodprobes"],
        careless=dict.fromkeys(
            ("again: PATCH pods", "again: PATCH pods/status"), "whole marks, until the cache shows them"
        ),
        replaces=[NODES],
    )


def liveness() -> Case:
    probes = [{"name": "main", "livenessProbe": {"exec": {"command": ["/alive"]}, "periodSeconds": 5}}]
    annotations = {names.CONTAINER_PROBE_CONTEXT: json.dumps(probes), names.USING_ENHANCED_LIVENESS: "true"}
    return case_of(
        "enhancedlivenessprobe-controller",
        [(CLONESETS, named("web", workload_spec(2))), (NODE_PROBES, named("node-a", {}))],
        {
            "Pods": owned_pods(CLONESETS, pod("web-0", annotations), pod("web-1", annotations)),
            "they fail": probed("Failed"),
            "one goes": delete(PODS, "web-0"),
        },
        final=["taken: POST containerrecreaterequests"],
        counts={"foreign": "every Pod with probes is probed"},
        fixed={"containerrecreaterequests are gone": "no webhook has set the node's label on them"},
        decided_live=["PATCH nodepodprobes"],
        replaces=[NODE_PROBES],
    )


def distribution() -> Case:
    def resource(value: str) -> Json:
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}, "data": {"region": value}}

    def targets(*given: str) -> Json:
        return {"includedNamespaces": {"list": [{"name": name} for name in given]}}

    spaces = [(NAMESPACES, {"metadata": {"name": name}}) for name in ("one", "two")]

    async def drift(world: World) -> None:
        await world.server.client.patch(CONFIGMAPS, "settings", {"data": {"region": "other"}}, "one")

    return case_of(
        "resourcedistribution-controller",
        spaces,
        {
            "created": create(
                DISTRIBUTIONS, named("rd", {"resource": resource("eu"), "targets": targets("one", "two")})
            ),
            "another value": patch(DISTRIBUTIONS, "rd", {"spec": {"resource": resource("us")}}),
            "somebody changes a copy": drift,
            "one namespace less": patch(DISTRIBUTIONS, "rd", {"spec": {"targets": targets("one")}}),
            "deleted": delete(DISTRIBUTIONS, "rd"),
        },
        decided_live=["PATCH configmaps"],
        overwrites={"owner of configmaps": "RD-37"},
        replaces=[DISTRIBUTIONS],
        never=dict.fromkeys(("POST secrets", "PATCH secrets", "DELETE secrets"), "as ConfigMaps"),
    )


CASES: Final = (
    readiness,
    sidecarset,
    repair,
    launch_priority,
    terminator,
    budget,
    workload_spread,
    persistent_pod_state,
    node_image,
    pull_job,
    pull_list,
    container_recreate,
    pod_probe_marker,
    node_pod_probe,
    liveness,
    distribution,
)
