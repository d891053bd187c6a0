"""One case for each controller and for each shell of the node agent."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from app.api import names
from app.kube.resources import NODES, PODS, STATEFULSETS, Resource
from tests.shells import agents, others
from tests.shells.building import (
    BROADCASTJOBS,
    CLAIM,
    CLONESETS,
    EPHEMERALJOBS,
    SELECTOR,
    case_of,
    during,
    named,
    ours,
    owned,
    pod,
    template,
)
from tests.shells.checks import Case, Edit, create, delete, patch, vanish
from tests.shells.others import AGAIN, BY_HAND, ENDED, NOW, several
from tests.shells.world import World

Json = dict[str, Any]
#: By default, a Pod that is being updated blocks the update of the others.
AT_ONCE: Final = {"updateStrategy": {"rollingUpdate": {"maxUnavailable": "100%"}}}
SPREAD: Final = {
    "maxSkew": 1,
    "topologyKey": "kubernetes.io/hostname",
    "whenUnsatisfiable": "ScheduleAnyway",
    "labelSelector": SELECTOR,
}
#: Pods with this label wait for a hook before they are deleted.
HOOKED: Final = {"preDelete": {"labelsHandler": {"hold": "yes"}}}
#: An ImagePullJob that replaced ours is left to its TTL.
PULL_REPLACED: Final = "replaced: DELETE imagepulljobs"
#: Images are not pre-pulled once the rollout is complete.
PULLS_DELAYED: Final = tuple(
    f"{kind}: {write}" for kind in ("down", "stuck") for write in ("POST imagepulljobs", "PATCH controllerrevisions")
)
#: Whether images are pre-pulled depends on the progress of the rollout.
PULLS: Final = r'^imagepulljobs.*|"apps.kruise.io/(image-predownload-ignored|pre-predownload-created)":"true",?'


def changing(resource: Resource, name: str) -> Callable[[Json], Edit]:
    """Return a function from fields of the object's spec to the edit that changes them."""
    return lambda spec: patch(resource, name, {"spec": spec})


def finishing(world: World) -> None:
    """End Pods of jobs as their labels say."""
    for one in world.objects(PODS):
        status, labels = one.get("status") or {}, one["metadata"].get("labels") or {}
        phase = "Succeeded" if "finish" in labels else "Failed" if "fail" in labels else ""
        if phase and status.get("phase") == "Running":
            world.set_status(PODS, one, phase=phase)


def cloneset() -> Case:
    in_place = {"podUpdatePolicy": "InPlaceIfPossible", "maxUnavailable": 1}
    spec = {
        "replicas": 4,
        "selector": SELECTOR,
        "template": template(),
        "volumeClaimTemplates": [CLAIM],
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": in_place},
        "revisionHistoryLimit": 1,
    }
    change = changing(CLONESETS, "web")
    return case_of(
        "cloneset-controller",
        [(CLONESETS, named("web", spec))],
        {
            "scale up": change({"replicas": 7}),
            "new image": change({"template": template("nginx:2")}),
            "new template": change(
                {"template": template("nginx:2", cpu="100m", topologySpreadConstraints=[SPREAD]), **AT_ONCE}
            ),
            "scale down": change({"replicas": 3, "scaleStrategy": {"enablePVCReuse": True}}),
            "a Pod is named": name_a_pod,
            "a Pod is deleted": delete_pods,
            "deleted": delete(CLONESETS, "web"),
        },
        ignored=PULLS,
        collected=["persistentvolumeclaims", "imagepulljobs"],
        final=[PULL_REPLACED],
        keeps={"Remembered._known": "the labels of nodes, for some seconds"},
        careless={"PATCH clonesets/status": "names are removed from podsToDelete without waiting for the cache"},
    )


async def name_a_pod(world: World) -> None:
    """Specify a Pod to delete, and change the image and resources of the others."""
    name = world.objects(PODS)[0]["metadata"]["name"]
    strategy = {"podsToDelete": [name], "enablePVCReuse": False}
    changed = template("nginx:3", cpu="200m", topologySpreadConstraints=[SPREAD])
    await patch(CLONESETS, "web", {"spec": {"scaleStrategy": strategy, "template": changed}})(world)


async def empty_node(world: World) -> None:
    """Remove the Pods of one node."""
    for one in world.objects(PODS):
        if one["spec"].get("nodeName") == "node-a":
            world.remove(PODS, one)


async def orphan(world: World) -> None:
    """Remove the owner of a Pod."""
    for one in world.objects(PODS)[:1]:
        world.store(PODS, {**one, "metadata": {**one["metadata"], "ownerReferences": []}})


def hooks_complete(world: World) -> None:
    """Complete the hooks that hold Pods."""
    for one in world.objects(PODS):
        metadata = one["metadata"]
        labels = metadata.get("labels") or {}
        if "hold" in labels and labels.get(names.LIFECYCLE_STATE, "").startswith("Preparing"):
            kept = {key: value for key, value in labels.items() if key != "hold"}
            world.store(PODS, {**one, "metadata": {**metadata, "labels": kept}})


async def delete_pods(world: World) -> None:
    for one in world.objects(PODS):
        await world.server.client.delete(PODS, one["metadata"]["name"], "default")


def statefulset() -> Case:
    resource = ours("StatefulSet")
    claims = {"whenDeleted": "Retain", "whenScaled": "Delete"}
    gates = [{"conditionType": names.IN_PLACE_UPDATE_READY}]
    spec = {
        "replicas": 2,
        "serviceName": "db",
        "selector": SELECTOR,
        "template": template(cpu="100m", readinessGates=gates),
        "volumeClaimTemplates": [CLAIM],
        "persistentVolumeClaimRetentionPolicy": claims,
        "revisionHistoryLimit": 1,
        "podManagementPolicy": "Parallel",
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"podUpdatePolicy": "InPlaceIfPossible"}},
    }

    change = changing(resource, "db")
    return case_of(
        "statefulset-controller",
        [(resource, named("db", spec))],
        {
            "scale up": change({"replicas": 5}),
            "new image and resources": change({"template": template("nginx:2", cpu="200m", readinessGates=gates)}),
            "new template": change({"template": template("nginx:2", hostname="x"), **AT_ONCE}),
            "scale down": change({"replicas": 1}),
            "Pods are deleted": delete_pods,
            "a Pod loses a label": patch(
                PODS, "db-0", {"metadata": {"labels": {"statefulset.kubernetes.io/pod-name": None}}}
            ),
            "a Pod has no owner": orphan,
            "claims must be kept": change(
                {"persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Delete", "whenScaled": "Retain"}}
            ),
        },
        replaces=[resource],
        final=[PULL_REPLACED, *PULLS_DELAYED],
        fixed={"controllerrevisions are gone": "the next reconcile recreates a deleted revision"},
        careless={"PATCH persistentvolumeclaims": "the same owner reference again"},
    )


def daemonset() -> Case:
    resource = ours("DaemonSet")
    change = changing(resource, "log")

    def only_on(node: str) -> Edit:
        selector = {"kubernetes.io/hostname": node}
        return change({"template": template("nginx:3", hostname="x", nodeSelector=selector)})

    hooked = template("nginx:2", {"hold": "yes"}, cpu="100m", hostname="x")
    rolling = {"rollingUpdateType": "InPlaceIfPossible", "maxUnavailable": 1}
    spec = {
        "selector": SELECTOR,
        "template": template(),
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": rolling},
        "revisionHistoryLimit": 1,
        "lifecycle": HOOKED,
    }
    return case_of(
        "daemonset-controller",
        [(resource, named("log", spec))],
        {
            "new image": change({"template": template("nginx:2")}),
            "new template": change({"template": hooked, **AT_ONCE}),
            "Pods are deleted": delete_pods,
            "a Pod has no owner": orphan,
            "new image and resources while a Pod is missing": several(
                empty_node, change({"template": template("nginx:3", cpu="200m", hostname="x"), **AT_ONCE})
            ),
            "one node only": only_on("node-a"),
            "another node only": only_on("node-b"),
            "a label of a node": patch(NODES, "node-a", {"metadata": {"labels": {"kubernetes.io/hostname": "node-b"}}}),
        },
        beside=hooks_complete,
        ignored=PULLS,
        decides_by_time=["DaemonSets"],
        final=[PULL_REPLACED],
        replaces=[resource],
    )


def broadcastjob() -> Case:
    spec = {
        "template": template(restartPolicy="Never"),
        "completionPolicy": {"type": "Always", "ttlSecondsAfterFinished": 30},
    }
    elsewhere = template(restartPolicy="Never", nodeSelector={"kubernetes.io/hostname": "node-b"})
    finish = template(labels={"finish": "yes"}, restartPolicy="Never")
    failing = {
        "template": template(labels={"fail": "yes"}, restartPolicy="Never"),
        "failurePolicy": {"type": "Pause", "restartLimit": 0},
        "completionPolicy": {"type": "Always", "activeDeadlineSeconds": 5},
    }
    late = {**spec, "completionPolicy": {"type": "Always", "activeDeadlineSeconds": 20}}
    return case_of(
        "broadcastjob-controller",
        [(BROADCASTJOBS, named("first", {**spec, "template": elsewhere}))],
        {
            "created": create(BROADCASTJOBS, named("job", spec)),
            "another template": patch(BROADCASTJOBS, "job", {"spec": {"template": elsewhere}}),
            "a Pod that is no longer wanted goes": empty_node,
            "nodes are other ones": patch(
                NODES, "node-a", {"metadata": {"labels": {"kubernetes.io/hostname": "node-b"}}}
            ),
            "a node too few": patch(NODES, "node-b", {"spec": {"taints": [{"key": "a", "effect": "NoExecute"}]}}),
            "a job that ends": create(BROADCASTJOBS, named("done", {**spec, "template": finish})),
            "a job that is paused": create(BROADCASTJOBS, named("failing", failing)),
            "a job that has no time": create(BROADCASTJOBS, named("late", late)),
        },
        beside=finishing,
        replaces=[BROADCASTJOBS],
        careless={"DELETE broadcastjobs": AGAIN},
    )


def ephemeraljob() -> Case:
    def job(name: str, container: str, **more: Any) -> Edit:
        added = {"name": container, "image": "busybox:1", "targetContainerName": "main"}
        spec = {"replicas": 2, "parallelism": 2, "ttlSecondsAfterFinished": 30, **more}
        whole = {"selector": SELECTOR, "template": {"ephemeralContainers": [added]}, **spec}
        return create(EPHEMERALJOBS, named(name, whole))

    return case_of(
        "ephemeraljob-controller",
        [(PODS, pod("web-0")), (PODS, pod("web-1"))],
        {
            "created": job("debug", "debug"),
            "they end": end_ephemeral,
            "another": job("again", "again"),
            "another Pod of the name": several(vanish(PODS, "web-0"), create(PODS, pod("web-0"))),
            "of all Pods": job("all", "all", replicas=None, parallelism=1),
            "another selector": patch(EPHEMERALJOBS, "all", {"spec": {"selector": {"matchLabels": {"app": "none"}}}}),
            "deleted": delete(EPHEMERALJOBS, "again"),
        },
        replaces=[EPHEMERALJOBS],
        counts={"stripped": "a Pod keeps the containers of a job that no longer selects it"},
        careless={"PATCH pods/ephemeralcontainers": "a job ends with the event of its replacement"},
    )


async def end_ephemeral(world: World) -> None:
    """End the ephemeral containers of all Pods."""
    ended = {"imageID": "", "restartCount": 0, "ready": False, "state": ENDED}
    for one in world.objects(PODS):
        containers = one["spec"].get("ephemeralContainers") or ()
        statuses = [{"name": each["name"], "image": each["image"], **ended} for each in containers]
        world.set_status(PODS, one, ephemeralContainerStatuses=statuses)


def uniteddeployment() -> Case:
    resource = ours("UnitedDeployment")

    def subset(name: str, zone: str) -> Json:
        term = {"matchExpressions": [{"key": "topology.kubernetes.io/zone", "operator": "In", "values": [zone]}]}
        return {"name": name, "nodeSelectorTerm": term}

    def workload(kind: str, image: str, app: str) -> Json:
        spec = {"selector": {"matchLabels": {"app": app}}, "template": template(image, {"app": app})}
        return {kind: {"metadata": {"labels": {"app": app}}, "spec": spec}}

    def of_sets(image: str) -> Json:
        return {
            "replicas": 1,
            "selector": {"matchLabels": {"app": "db"}},
            "template": workload("statefulSetTemplate", image, "db"),
            "topology": {"subsets": [subset("a", "a")]},
        }

    def of_clone_sets(image: str) -> Json:
        return workload("cloneSetTemplate", image, "web")

    spec = {
        "replicas": 4,
        "selector": SELECTOR,
        "template": of_clone_sets("nginx:1"),
        "revisionHistoryLimit": 1,
        "topology": {"subsets": [subset("a", "a"), subset("b", "b")]},
    }

    reserving = {"rescheduleCriticalSeconds": 5, "reserveUnschedulablePods": True}
    change = changing(resource, "web")
    return case_of(
        "uniteddeployment-controller",
        [(resource, named("web", spec))],
        {
            "another": create(resource, named("other", {**spec, "replicas": 2})),
            "scale": change({"replicas": 6}),
            "new image": change({"template": of_clone_sets("nginx:2")}),
            "newer image": change({"template": of_clone_sets("nginx:3")}),
            "a workload loses its label": lose_label,
            "it has the label again": regain_label,
            "one subset": change({"topology": {"subsets": [subset("a", "a")]}}),
            "of StatefulSets": create(resource, {"metadata": {"name": "db"}, "spec": of_sets("db:1")}),
            "a Pod that is not ready": stuck,
            "a rollout that the Pod blocks": patch(resource, "db", {"spec": of_sets("db:2")}),
            "a Pod that fits nowhere is reserved": several(
                unschedulable,
                change({"topology": {"scheduleStrategy": {"type": "Adaptive", "adaptive": reserving}}}),
            ),
        },
        beside=rolled_out,
        replaces=[resource],
        never={
            **dict.fromkeys(
                ("POST deployments", "PATCH deployments", "DELETE deployments", "DELETE statefulsets"), "as CloneSets"
            ),
            "PATCH controllerrevisions": "only a reused revision is patched",
        },
        careless=dict.fromkeys(("again: PATCH clonesets", "again: PATCH statefulsets"), "the same spec again"),
        relies_on_status=True,
    )


async def stuck(world: World) -> None:
    """Give StatefulSets a Pod that is never ready."""
    for owner in world.objects(STATEFULSETS):
        await create(PODS, pending_pod(f"{owner['metadata']['name']}-0", owner))(world)


async def unschedulable(world: World) -> None:
    """Give a CloneSet of UnitedDeployment web a Pod that fits nowhere."""
    owned_by = {
        ref["name"]: one for one in world.objects(CLONESETS) for ref in one["metadata"].get("ownerReferences") or ()
    }
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "lastTransitionTime": NOW}
    await create(PODS, pending_pod("web-0", owned_by["web"], conditions=[condition]))(world)


def pending_pod(name: str, owner: Json, **status: Any) -> Json:
    """Return a Pod of a workload of a UnitedDeployment that does not run."""
    made = owned(pod(name), owner)
    metadata = {**made["metadata"], **owner["spec"]["template"]["metadata"], "annotations": BY_HAND}
    return {**made, "metadata": metadata, "status": {"phase": "Pending", **status}}


async def lose_label(world: World) -> None:
    """Remove the selector's label from a workload."""
    name = world.objects(CLONESETS)[0]["metadata"]["name"]
    await patch(CLONESETS, name, {"metadata": {"labels": {"app": "none"}}})(world)


async def regain_label(world: World) -> None:
    """Give workloads without an owner the selector's label again."""
    for one in world.objects(CLONESETS):
        if not one["metadata"].get("ownerReferences"):
            await patch(CLONESETS, one["metadata"]["name"], {"metadata": {"labels": {"app": "web"}}})(world)


def rolled_out(world: World) -> None:
    """Complete rollouts of CloneSets at once."""
    for one in world.objects(CLONESETS):
        generation, replicas = one["metadata"].get("generation", 1), one["spec"].get("replicas", 1)
        counts = ("replicas", "readyReplicas", "availableReplicas", "updatedReplicas", "updatedReadyReplicas")
        status = {"observedGeneration": generation, **dict.fromkeys(counts, replicas)}
        if one.get("status") != status:
            world.store(CLONESETS, {**one, "status": status})


def advancedcronjob() -> Case:
    resource = ours("AdvancedCronJob")
    job = {"broadcastJobTemplate": {"spec": {"template": template(restartPolicy="Never")}}}
    spec = {"schedule": "* * * * *", "template": job, "successfulJobsHistoryLimit": 1, "failedJobsHistoryLimit": 1}

    return case_of(
        "advancedcronjob-controller",
        [(resource, named("cron", {**spec, "schedule": "0 0 1 1 *"}))],
        {
            "each minute": during(130, patch(resource, "cron", {"spec": {"schedule": "* * * * *"}})),
            "jobs end": during(70, end_jobs),
            "jobs end again": during(70, end_jobs),
            "replaced each minute": during(130, patch(resource, "cron", {"spec": {"concurrencyPolicy": "Replace"}})),
            "one at a time": during(
                130, several(end_jobs, patch(resource, "cron", {"spec": {"concurrencyPolicy": "Forbid"}}))
            ),
            "suspended": patch(resource, "cron", {"spec": {"paused": True}}),
        },
        rest=20.0,
        timed=True,
        decides_by_time=["AdvancedCronJobs", "late: BroadcastJobs", "a new leader"],
        careless={"DELETE broadcastjobs": AGAIN},
        final=["crashed: PATCH advancedcronjobs/status"],  # no process runs during the edit
        never=dict.fromkeys(
            (f"{verb} {kind}" for verb in ("POST", "DELETE") for kind in ("jobs", "imagelistpulljobs")),
            "as BroadcastJobs",
        ),
    )


async def end_jobs(world: World) -> None:
    """Complete the running jobs of all kinds."""
    for one in world.objects(BROADCASTJOBS):
        empty = {"reason": "", "message": "", "lastTransitionTime": None, "lastProbeTime": None}
        done = {"type": "Complete", "status": "True", **empty}
        status = {"phase": "completed", "conditions": [done], "completionTime": NOW}
        if not (one.get("status") or {}).get("conditions"):
            world.store(BROADCASTJOBS, {**one, "status": status})


CASES: Final[Sequence[Callable[[], Case]]] = (
    cloneset,
    statefulset,
    daemonset,
    broadcastjob,
    ephemeraljob,
    uniteddeployment,
    advancedcronjob,
    *others.CASES,
    *agents.CASES,
)


def cases() -> Iterator[Case]:
    for one in CASES:
        yield one()
