"""The native controllers on an in-memory API server with simulated nodes, in virtual time."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from app.kube.errors import TooManyRequests
from app.kube.resources import (
    CONFIGMAPS,
    CONTROLLERREVISIONS,
    DAEMONSETS,
    DEPLOYMENTS,
    ENDPOINTSLICES,
    EVENTS,
    NAMESPACES,
    NODES,
    PERSISTENTVOLUMECLAIMS,
    PODS,
    REPLICASETS,
    SERVICEACCOUNTS,
    SERVICES,
    STATEFULSETS,
)
from app.sandbox.controllers.objects import ENDPOINTS, JOBS, PERSISTENTVOLUMES, PODDISRUPTIONBUDGETS
from app.sandbox.kubelet.program import BEHAVIOUR, Pace
from tests.kit import virtualtime
from tests.sandbox.cluster import Simulated, in_simulated, simulated

LABELS = {"app": "web"}


def template(image: str = "nginx:1", *, annotations: Any = None, **spec: Any) -> dict[str, Any]:
    metadata: dict[str, Any] = {"labels": LABELS}
    if annotations:
        metadata["annotations"] = annotations
    containers = [{"name": "main", "image": image, "ports": [{"name": "http", "containerPort": 80}]}]
    return {"metadata": metadata, "spec": {"containers": containers, "terminationGracePeriodSeconds": 1} | spec}


def workload(name: str = "web", replicas: int = 3, image: str = "nginx:1", **spec: Any) -> dict[str, Any]:
    body: dict[str, Any] = {"replicas": replicas, "selector": {"matchLabels": LABELS}, "template": template(image)}
    return {"metadata": {"name": name}, "spec": body | spec}


async def ready_pods(world: Simulated) -> set[str]:
    return {
        pod["metadata"]["name"]
        for pod in await world.pods()
        for one in pod.get("status", {}).get("conditions", ())
        if (one["type"], one["status"]) == ("Ready", "True")
    }


@in_simulated
async def test_a_replica_set_keeps_its_replicas(world: Simulated) -> None:
    await world.create(REPLICASETS, workload(replicas=5))
    await world.status(REPLICASETS, "web", readyReplicas=5, availableReplicas=5, observedGeneration=1)
    pods = await world.pods()
    assert len({pod["spec"]["nodeName"] for pod in pods}) == 3
    gone = pods[0]["metadata"]["name"]
    await world.client.delete(PODS, gone, "default")

    async def replaced() -> bool:
        names = await ready_pods(world)
        return len(names) == 5 and gone not in names

    await world.until(replaced)
    await world.patch(REPLICASETS, "web", {"spec": {"replicas": 2}})
    await world.status(REPLICASETS, "web", replicas=2, readyReplicas=2)
    # A Pod that no longer matches is released, and one that matches is adopted.
    [first, _] = await world.pods("app=web")
    await world.patch(PODS, first["metadata"]["name"], {"metadata": {"labels": {"app": "debug"}}})

    async def three() -> bool:
        return len(await ready_pods(world)) == 3

    await world.until(three)
    [lost] = await world.pods("app=debug")
    assert "ownerReferences" not in lost["metadata"]


@in_simulated
async def test_pods_are_available_after_min_ready_seconds(world: Simulated) -> None:
    await world.create(REPLICASETS, workload(replicas=1, minReadySeconds=20))
    await world.status(REPLICASETS, "web", readyReplicas=1, availableReplicas=0)
    began = world.client.clock.monotonic()
    await world.status(REPLICASETS, "web", availableReplicas=1)
    assert 18 < world.client.clock.monotonic() - began < 22


@in_simulated(pace=Pace(start=2))
async def test_a_deployment_respects_its_limits_and_rolls_back(world: Simulated) -> None:
    await world.create(DEPLOYMENTS, workload(replicas=4))
    await world.status(DEPLOYMENTS, "web", readyReplicas=4, updatedReplicas=4)
    seen: list[tuple[int, int]] = []

    def watch(*_: Any) -> None:
        pods = [pod for pod in world.cluster.pods.list() if pod.metadata.deletion_timestamp is None]
        able = [p for p in pods if any(c.type == "Ready" and c.status == "True" for c in p.status.conditions)]
        seen.append((len(pods), len(able)))

    world.cluster.pods.subscribe(watch)
    await world.patch(DEPLOYMENTS, "web", {"spec": {"template": template("nginx:2")}})
    status = await world.status(
        DEPLOYMENTS, "web", observedGeneration=2, replicas=4, updatedReplicas=4, availableReplicas=4
    )
    # 25% of 4: one more, one less.
    assert max(total for total, _ in seen) <= 5
    assert min(able for _, able in seen) >= 3
    assert {pod["spec"]["containers"][0]["image"] for pod in await world.pods()} == {"nginx:2"}
    conditions = {one["type"]: (one["status"], one["reason"]) for one in status["conditions"]}
    assert conditions == {
        "Available": ("True", "MinimumReplicasAvailable"),
        "Progressing": ("True", "NewReplicaSetAvailable"),
    }
    revision = "deployment.kubernetes.io/revision"
    found = await world.get(DEPLOYMENTS, "web")
    assert found["metadata"]["annotations"][revision] == "2"
    # After a rollback, the first ReplicaSet has the third revision.
    await world.patch(DEPLOYMENTS, "web", {"spec": {"template": template("nginx:1")}})
    await world.status(DEPLOYMENTS, "web", observedGeneration=3, updatedReplicas=4, availableReplicas=4, replicas=4)
    sets = (await world.client.list(REPLICASETS, "default")).items
    assert sorted((one["metadata"]["annotations"][revision], one["spec"]["replicas"]) for one in sets) == [
        ("2", 0),
        ("3", 4),
    ]
    await world.patch(DEPLOYMENTS, "web", {"spec": {"replicas": 1}})
    await world.status(DEPLOYMENTS, "web", replicas=1, availableReplicas=1)


@in_simulated
async def test_templates_with_the_same_hash_are_distinguished_by_a_count(world: Simulated) -> None:
    """The hashed text does not separate arguments, so different templates can have equal hashes."""

    def with_args(*args: str) -> dict[str, Any]:
        made = template()
        made["spec"]["containers"][0]["args"] = list(args)
        return made

    await world.create(DEPLOYMENTS, workload(template=with_args("a b")))
    await world.status(DEPLOYMENTS, "web", readyReplicas=3, updatedReplicas=3)
    await world.patch(DEPLOYMENTS, "web", {"spec": {"template": with_args("a", "b")}})
    done = {"replicas": 3, "updatedReplicas": 3, "availableReplicas": 3}
    await world.status(DEPLOYMENTS, "web", observedGeneration=2, collisionCount=1, **done)
    assert {tuple(pod["spec"]["containers"][0]["args"]) for pod in await world.pods()} == {("a", "b")}
    sets = (await world.client.list(REPLICASETS, "default")).items
    assert len({one["metadata"]["labels"]["pod-template-hash"] for one in sets}) == len(sets) == 2


@in_simulated
async def test_a_recreate_deployment_never_runs_both_revisions(world: Simulated) -> None:
    await world.create(DEPLOYMENTS, workload(replicas=2, strategy={"type": "Recreate"}))
    await world.status(DEPLOYMENTS, "web", readyReplicas=2)
    images: set[frozenset[str]] = set()
    world.cluster.pods.subscribe(
        lambda _: images.add(frozenset(p.spec.containers[0].image for p in world.cluster.pods.list()))
    )
    await world.patch(DEPLOYMENTS, "web", {"spec": {"template": template("nginx:2")}})
    await world.status(DEPLOYMENTS, "web", observedGeneration=2, readyReplicas=2, updatedReplicas=2)
    assert images <= {frozenset(), frozenset({"nginx:1"}), frozenset({"nginx:2"})}


@in_simulated(pace=Pace(start=1))
async def test_a_stateful_set_runs_in_order_with_its_own_claims(world: Simulated) -> None:
    claim_spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    claims = [{"metadata": {"name": "data"}, "spec": claim_spec}]
    body = workload(replicas=3, serviceName="web", volumeClaimTemplates=claims)
    starts: list[str] = []
    world.cluster.pods.subscribe(
        lambda change: starts.append(change.object.metadata.name) if change.old is None else None
    )
    await world.create(STATEFULSETS, body)
    await world.status(STATEFULSETS, "web", readyReplicas=3, currentReplicas=3)
    assert starts == ["web-0", "web-1", "web-2"]
    pod = await world.get(PODS, "web-1")
    assert pod["metadata"]["labels"]["statefulset.kubernetes.io/pod-name"] == "web-1"
    assert pod["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"] == "data-web-1"
    claim = await world.get(PERSISTENTVOLUMECLAIMS, "data-web-1")
    assert claim["status"]["phase"] == "Bound"
    assert len((await world.client.list(PERSISTENTVOLUMES)).items) == 3
    # From the highest ordinal down to the partition.
    rolling = {"type": "RollingUpdate", "rollingUpdate": {"partition": 1}}
    await world.patch(STATEFULSETS, "web", {"spec": {"template": template("nginx:2"), "updateStrategy": rolling}})
    await world.status(STATEFULSETS, "web", updatedReplicas=2, readyReplicas=3)
    assert starts == ["web-0", "web-1", "web-2", "web-2", "web-1"]
    images = [pod["spec"]["containers"][0]["image"] for pod in await world.pods()]
    assert images == ["nginx:1", "nginx:2", "nginx:2"]
    await world.patch(STATEFULSETS, "web", {"spec": {"updateStrategy": {"rollingUpdate": {"partition": 0}}}})
    status = await world.status(STATEFULSETS, "web", updatedReplicas=3, readyReplicas=3, currentReplicas=3)
    assert status["currentRevision"] == status["updateRevision"]
    assert len((await world.client.list(CONTROLLERREVISIONS, "default")).items) == 2
    await world.patch(STATEFULSETS, "web", {"spec": {"replicas": 1}})
    await world.status(STATEFULSETS, "web", replicas=1)
    assert [pod["metadata"]["name"] for pod in await world.pods()] == ["web-0"]


@in_simulated
async def test_a_daemon_set_runs_on_every_eligible_node(world: Simulated) -> None:
    await world.patch(NODES, "node3", {"metadata": {"labels": {"disk": "ssd"}}})
    body = {"selector": {"matchLabels": LABELS}, "template": template()}
    await world.create(DAEMONSETS, {"metadata": {"name": "agent"}, "spec": body})
    await world.status(DAEMONSETS, "agent", numberReady=3, numberAvailable=3, desiredNumberScheduled=3)
    assert {pod["spec"]["nodeName"] for pod in await world.pods()} == {"node1", "node2", "node3"}
    only = template("nginx:2", nodeSelector={"disk": "ssd"})
    await world.patch(DAEMONSETS, "agent", {"spec": {"template": only}})
    await world.status(
        DAEMONSETS, "agent", observedGeneration=2, desiredNumberScheduled=1, numberReady=1, updatedNumberScheduled=1
    )
    [pod] = await world.pods()
    assert (pod["spec"]["nodeName"], pod["spec"]["containers"][0]["image"]) == ("node3", "nginx:2")


@in_simulated
async def test_jobs_complete_fail_and_expire(world: Simulated) -> None:
    def job(name: str, command: list[str], **spec: Any) -> dict[str, Any]:
        containers = [{"name": "main", "image": "busybox", "command": command}]
        pod = {"spec": {"restartPolicy": "Never", "containers": containers}}
        return {"metadata": {"name": name}, "spec": {"template": pod} | spec}

    await world.create(JOBS, job("pi", ["sleep", "3"], completions=5, parallelism=2))
    status = await world.status(JOBS, "pi", succeeded=5, active=0)
    assert [one["type"] for one in status["conditions"]] == ["SuccessCriteriaMet", "Complete"]
    await world.create(JOBS, job("bad", ["false"], backoffLimit=1))
    status = await world.status(JOBS, "bad", failed=2, active=0)
    assert [one["reason"] for one in status["conditions"]] == ["BackoffLimitExceeded"] * 2
    await world.create(JOBS, job("late", ["sleep", "1h"], activeDeadlineSeconds=10, ttlSecondsAfterFinished=20))

    async def over() -> Any:
        status = (await world.get(JOBS, "late"))["status"]
        return "conditions" in status and status

    status = await world.until(over)
    assert status["conditions"][-1]["reason"] == "DeadlineExceeded"

    async def names() -> list[str]:
        return [one["metadata"]["name"] for one in (await world.client.list(JOBS, "default")).items]

    await world.becomes(names, ["bad", "pi"], 30)
    await world.create(JOBS, job("parts", ["true"], completions=3, parallelism=3, completionMode="Indexed"))
    await world.status(JOBS, "parts", succeeded=3)


@in_simulated
async def test_a_service_lists_its_pods_by_readiness(world: Simulated) -> None:
    ports = [{"name": "web", "port": 80, "targetPort": "http"}]
    await world.create(SERVICES, {"metadata": {"name": "web"}, "spec": {"selector": LABELS, "ports": ports}})
    await world.create(REPLICASETS, workload(replicas=2))

    async def both() -> Any:
        slices = (await world.client.list(ENDPOINTSLICES, "default")).items
        ready = [one["conditions"]["ready"] for found in slices for one in found["endpoints"]]
        return ready == [True, True] and slices[0]

    found = await world.until(both)
    assert found["ports"] == [{"name": "web", "port": 80, "protocol": "TCP"}]
    assert found["metadata"]["labels"]["kubernetes.io/service-name"] == "web"
    [pod, _] = await world.pods()
    name = pod["metadata"]["name"]
    await world.patch(PODS, name, {"metadata": {"annotations": {"sandbox.pykruise.io/unready": "main"}}})

    async def one_waits() -> Any:
        subset = (await world.get(ENDPOINTS, "web"))["subsets"][0]
        return [one["targetRef"]["name"] for one in subset.get("notReadyAddresses", ())] == [name]

    await world.until(one_waits)


@in_simulated
async def test_a_budget_holds_back_evictions(world: Simulated) -> None:
    await world.create(REPLICASETS, workload(replicas=3))
    spec = {"minAvailable": 2, "selector": {"matchLabels": LABELS}}
    await world.create(PODDISRUPTIONBUDGETS, {"metadata": {"name": "web"}, "spec": spec})
    status = await world.status(PODDISRUPTIONBUDGETS, "web", disruptionsAllowed=1, currentHealthy=3)
    assert (status["desiredHealthy"], status["expectedPods"]) == (2, 3)
    pods = await world.pods()

    async def evict(pod: dict[str, Any]) -> None:
        name = pod["metadata"]["name"]
        await world.client.create(PODS, {"metadata": {"name": name}}, "default", name=name, subresource="eviction")

    # While the new container is not ready yet, the second eviction must wait.
    annotations = {BEHAVIOUR: '{"*": {"readyAfter": 30}}'}
    await world.patch(REPLICASETS, "web", {"spec": {"template": template(annotations=annotations)}})
    await evict(pods[0])
    await world.status(PODDISRUPTIONBUDGETS, "web", disruptionsAllowed=0)
    with pytest.raises(TooManyRequests):
        await evict(pods[1])
    await world.status(PODDISRUPTIONBUDGETS, "web", disruptionsAllowed=1)


@in_simulated(2)
async def test_pods_of_an_unresponsive_node_are_moved(world: Simulated) -> None:
    stays = {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute"}
    patient = template(tolerations=[stays | {"tolerationSeconds": 30}])
    await world.create(DEPLOYMENTS, workload(replicas=2, template=patient))
    await world.status(DEPLOYMENTS, "web", readyReplicas=2)
    assert Counter(pod["spec"]["nodeName"] for pod in await world.pods()) == {"node1": 1, "node2": 1}
    world.cluster.nodes.kubelets.stop("node1")

    async def unknown() -> Any:
        node = await world.get(NODES, "node1")
        return {c["type"]: c["status"] for c in node["status"]["conditions"]}["Ready"] == "Unknown"

    await world.until(unknown, 60)
    await world.status(DEPLOYMENTS, "web", readyReplicas=1)
    await world.status(DEPLOYMENTS, "web", readyReplicas=2)
    pods = [pod for pod in await world.pods() if "deletionTimestamp" not in pod["metadata"]]
    assert {pod["spec"]["nodeName"] for pod in pods} == {"node2"}
    world.cluster.nodes.kubelets.start("node1")

    async def back() -> Any:
        node = await world.get(NODES, "node1")
        return not node["spec"].get("taints") and len(await world.pods()) == 2

    await world.until(back, 60)


@in_simulated
async def test_a_namespace_gets_a_service_account_and_root_ca(world: Simulated) -> None:
    await world.create(NAMESPACES, {"metadata": {"name": "shop"}})

    async def names() -> list[str]:
        found = [(await world.client.list(resource, "shop")).items for resource in (SERVICEACCOUNTS, CONFIGMAPS)]
        return [one["metadata"]["name"] for items in found for one in items]

    await world.becomes(names, ["default", "kube-root-ca.crt"])


@in_simulated
async def test_events_report_what_happens_to_a_pod(world: Simulated) -> None:
    spec = {"containers": [{"name": "main", "image": "nginx:1"}]}
    await world.create(PODS, {"metadata": {"name": "web"}, "spec": spec})

    async def events(name: str = "web") -> list[str]:
        found = (await world.client.list(EVENTS, "default")).items
        return sorted(one["reason"] for one in found if one["involvedObject"]["name"] == name)

    await world.becomes(events, ["Created", "Pulled", "Pulling", "Scheduled", "Started"])
    spec["containers"][0]["resources"] = {"requests": {"cpu": "64"}}
    await world.create(PODS, {"metadata": {"name": "big"}, "spec": spec})

    await world.becomes(lambda: events("big"), ["FailedScheduling"])
    [condition] = (await world.get(PODS, "big"))["status"]["conditions"]
    assert condition["message"] == (
        "0/3 nodes are available: 3 Insufficient cpu. "
        "preemption: 0/3 nodes are available: 3 No preemption victims found for incoming pod."
    )


def test_the_same_seed_has_the_same_history() -> None:
    async def history(seed: int) -> list[tuple[str, ...]]:
        written: list[tuple[str, ...]] = []
        async with simulated(seed=seed) as world:
            world.api.on_write(
                lambda verb, resource, old, new: written.append(
                    (verb, resource.kind, (new or old or {})["metadata"]["name"], str(new))
                )
            )
            await world.create(DEPLOYMENTS, workload(replicas=5))
            await world.status(DEPLOYMENTS, "web", readyReplicas=5)
            await world.client.clock.sleep(30)
        return written

    one, again, other = (virtualtime.run(history(seed)) for seed in (3, 3, 4))
    assert len(one) > 20
    assert one == again
    assert one != other
