"""Cases of the node agent, on a runtime whose containers follow the Pods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from app.api.names import IN_PLACE_UPDATE_READY
from app.daemon import meta_plan as meta
from app.daemon.agent import Agent
from app.daemon.cri.types import (
    RESTART_COUNT,
    Auth,
    Container,
    ContainerDetails,
    ContainerState,
    ExecResult,
    Image,
    NoSuchContainer,
)
from app.daemon.objects import (
    NODE_IMAGES,
    NODE_POD_PROBES,
    RECREATE_REQUESTS,
    decode_node_image,
    decode_node_pod_probe,
    decode_recreate_request,
)
from app.framework.watched import Scope, Watched
from app.kube.client import Client
from app.kube.errors import NotFound
from app.kube.objects import decode_pod
from app.kube.resources import NODES, PODS
from app.pods.container_meta import plain_hash
from tests.shells.building import during, named, pod
from tests.shells.checks import Case, create, patch
from tests.shells.others import ENDED, NOW, pod_probe, recreate_request, several
from tests.shells.world import Running, World

Json = dict[str, Any]
NODE: Final = "node-a"
IMAGES: Final = "shells.test/images"
LABEL: Final = "metadata.labels['color']"


class PodsRuntime:
    """The runtime of a node (:class:`app.daemon.cri.types.Runtime`). Its containers are those in the Pods' statuses."""

    name = "containerd"

    def __init__(self, world: World) -> None:
        self._world = world
        #: Stopped containers by id, with their Pods; a runtime keeps them for a while.
        self._ended: dict[str, tuple[Json, Json]] = {}

    def _statuses(self) -> list[tuple[Json, Json]]:
        pods = [one for one in self._world.objects(PODS) if one["spec"].get("nodeName") == NODE]
        return [(one, status) for one in pods for status in (one.get("status") or {}).get("containerStatuses") or ()]

    def _find(self, container_id: str) -> tuple[Json, Json]:
        for one, status in self._statuses():
            if status["containerID"] == f"containerd://{container_id}":
                return one, status
        if container_id in self._ended:
            return self._ended[container_id]
        raise NoSuchContainer(container_id)

    async def containers(self, pod_uid: str) -> Sequence[Container]:
        await self._world.call("containers")
        return [_listed(status) for one, status in self._statuses() if one["metadata"]["uid"] == pod_uid]

    async def details(self, container_id: str) -> ContainerDetails:
        one, status = self._find(container_id)
        listed = _listed(status)
        annotations = {
            RESTART_COUNT: str(status["restartCount"]),
            meta.GRACE: "30",
            meta.HASH: f"{plain_hash(status['name'], status['image']):x}",
        }
        labels = {"io.kubernetes.pod.uid": one["metadata"]["uid"]}
        state, ended = listed.state, listed.state is ContainerState.EXITED
        return ContainerDetails(container_id, listed.name, state, 1, 1, 2 if ended else 0, 0, labels, annotations)

    async def stop(self, container_id: str, grace: int) -> None:
        one, status = self._find(container_id)
        obeys = await self._world.call("stop")
        self._world.effects[f"stop {one['metadata']['name']} {status['name']}"] += obeys
        if not obeys or container_id in self._ended:
            return
        self._ended[container_id] = (one, {**status, "state": ENDED})
        statuses = [
            {**each, "state": ENDED, "ready": False} if each is status else each
            for each in one["status"]["containerStatuses"]
        ]
        self._world.set_status(PODS, one, containerStatuses=statuses)

    async def execute(self, container_id: str, command: Sequence[str], seconds: float) -> ExecResult:
        one, _ = self._find(container_id)
        await self._world.call("execute")
        if list(command) == ["env"]:
            color = self._world.server.environments.setdefault(container_id, one["metadata"]["labels"].get("color", ""))
            return ExecResult(0, f"COLOR={color}\n".encode())
        return ExecResult(1 if "ill" in one["metadata"]["labels"] else 0, b"said so")

    async def images(self, seconds: float) -> Sequence[Image]:
        return [Image(f"sha256:{name}", (name,), ()) for name in self._pulled()]

    def _pulled(self) -> list[str]:
        node = next(one for one in self._world.objects(NODES) if one["metadata"]["name"] == NODE)
        return [one for one in (node["metadata"].get("annotations") or {}).get(IMAGES, "").split(",") if one]

    async def pull(
        self,
        reference: str,
        auth: Auth | None,
        labels: Mapping[str, str],
        annotations: Mapping[str, str],
        seconds: float,
    ) -> None:
        await self._world.call("pull")
        await self._world.clock.sleep(2.0)
        self._world.effects[f"pull {reference}"] += 1
        node = next(one for one in self._world.objects(NODES) if one["metadata"]["name"] == NODE)
        given = {**(node["metadata"].get("annotations") or {}), IMAGES: ",".join([*self._pulled(), reference])}
        self._world.store(NODES, {**node, "metadata": {**node["metadata"], "annotations": given}})

    async def close(self) -> None:
        """Do nothing: no connection is open."""


def _listed(status: Json) -> Container:
    state = ContainerState.RUNNING if "running" in status["state"] else ContainerState.EXITED
    return Container(status["containerID"].partition("://")[2], status["name"], state, 1)


def agent(world: World, client: Client) -> Running:
    """Start the agent of the node."""
    made = Agent(NODE, client, [PodsRuntime(world)], world.rng, watches=False)
    assert made.pods is not None
    for one in made.controllers:
        one.workers = 1
    own = f"metadata.name={NODE}"
    active = f"crr.apps.kruise.io/node-name={NODE},crr.apps.kruise.io/active=true"
    cluster = Scope.CLUSTER
    stores: list[tuple[Watched[Any], Any]] = [
        (Watched("NodeImage", NODE_IMAGES, decode_node_image, cluster, field_selector=own), made.node_images),
        (Watched("requests", RECREATE_REQUESTS, decode_recreate_request, label_selector=active), made.requests),
        (
            Watched("NodePodProbe", NODE_POD_PROBES, decode_node_pod_probe, cluster, field_selector=own),
            made.node_pod_probes,
        ),
        (Watched("Pods", PODS, decode_pod, field_selector=f"spec.nodeName={NODE}"), made.pods),
    ]
    return Running(made.controllers, [made.run], stores, made._recorders)


def puller() -> Case:
    def images(**tags: int) -> Json:
        entries = [
            {"tag": tag, "version": version, "createdAt": NOW, "pullPolicy": {"backoffLimit": 1}}
            for tag, version in tags.items()
        ]
        return {"spec": {"images": {"nginx": {"tags": entries}}}}

    async def twice(world: World) -> None:
        await during(1, patch(NODE_IMAGES, NODE, images(one=2)))(world)
        with suppress(NotFound):  # a fault may have removed it
            await patch(NODE_IMAGES, NODE, images(one=3))(world)

    return Case(
        "agent: image puller",
        agent,
        [(NODE_IMAGES, named(NODE, {"images": {}}))],
        {
            "an image": patch(NODE_IMAGES, NODE, images(one=0)),
            "another image": patch(NODE_IMAGES, NODE, images(one=0, two=0)),
            "once more": patch(NODE_IMAGES, NODE, images(one=1, two=0)),
            "one less": patch(NODE_IMAGES, NODE, images(one=1)),
            "again while it is pulled": twice,
        },
        relies_on_status=True,
        replaces=[NODE_IMAGES],
        ignored=r"^nodes: .*",
    )


def recreator() -> Case:
    def manager(world: World) -> None:
        """Copy fields of the Pod's status, as the manager does."""
        statuses = {
            one["metadata"]["uid"]: (one.get("status") or {}).get("containerStatuses") for one in world.objects(PODS)
        }
        for one in world.objects(RECREATE_REQUESTS):
            found = statuses.get(one["metadata"]["labels"]["crr.apps.kruise.io/pod-uid"]) or ()
            snapshot = [
                {"ready": True, **{key: each[key] for key in ("name", "restartCount", "containerID")}} for each in found
            ]
            status = one.get("status") or {}
            if status.get("phase") == "Recreating" and status.get("containerStatusSnapshot") != snapshot:
                world.set_status(RECREATE_REQUESTS, one, containerStatusSnapshot=snapshot)

    return Case(
        "agent: recreator",
        agent,
        [(PODS, pod("web-0"))],
        {
            "a request": recreate_request("again", strategy={"failurePolicy": "Fail"}),
            "another request": recreate_request("forced", strategy={"failurePolicy": "Ignore", "forceRecreate": True}),
        },
        beside=manager,
        final=["refused: CALL stop", "ignored: CALL stop"],
        relies_on_status=True,
        careless={"again: PATCH containerrecreaterequests/status": "after ten seconds, the cached state counts"},
        lag=12.0,  # longer than the agent waits for its own writes
    )


def prober() -> Case:
    def probed(period: int, command: str = "/check") -> Any:
        async def edit(world: World) -> None:
            which = next(one for one in world.objects(PODS) if one["metadata"]["name"] == "web-0")
            entry = pod_probe(which, {"exec": {"command": [command]}, "periodSeconds": period})
            await patch(NODE_POD_PROBES, NODE, {"spec": {"podProbes": [entry]}})(world)

        return edit

    return Case(
        "agent: prober",
        agent,
        [(PODS, pod("web-0")), (NODE_POD_PROBES, named(NODE, {}))],
        {
            "a probe": probed(5),
            "a Pod becomes unhealthy": patch(PODS, "web-0", {"metadata": {"labels": {"ill": "yes"}}}),
            "another period": probed(7),
            "another command": probed(7, "/other"),
            "no probe": patch(NODE_POD_PROBES, NODE, {"spec": {"podProbes": []}}),
        },
        relies_on_status=True,
        restart_writes=True,
        replaces=[NODE_POD_PROBES],
    )


async def begin_update(world: World) -> None:
    """Give every Pod an in-place update in progress."""
    for one in world.objects(PODS):
        world.set_condition(one, {"type": IN_PLACE_UPDATE_READY, "status": "False", "lastTransitionTime": None})


def reporter() -> Case:
    def containers(image: str) -> list[Json]:
        return [{"name": "main", "image": image, "env": env}]

    env = [{"name": "COLOR", "valueFrom": {"fieldRef": {"fieldPath": LABEL}}}]
    body = pod("web-0", {"kruise.io/sidecarset-hash": "{}"}, containers=containers("nginx:1"), nodeName=NODE)
    body["metadata"]["labels"]["color"] = "red"
    return Case(
        "agent: meta reporter",
        agent,
        [],
        {
            "a Pod": create(PODS, body),
            "another label": several(patch(PODS, "web-0", {"metadata": {"labels": {"color": "blue"}}}), begin_update),
            "another image": patch(PODS, "web-0", {"spec": {"containers": containers("nginx:2")}}),
        },
        decides_by_time=["late: Pods", "a new leader"],
        replaces=[PODS],
    )


CASES: Final = (puller, recreator, prober, reporter)
