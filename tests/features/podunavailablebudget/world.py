"""A small cluster in memory on virtual time, with the budget controller and webhook replicas."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from random import Random
from typing import Any, ClassVar

from app.admission.pod_webhooks import PodGuards
from app.api.crd import manifest
from app.features.cloneset.kind import CLONE_SET
from app.features.podunavailablebudget import feature as declared
from app.features.podunavailablebudget.budgets import (
    COMPUTED_WITHIN,
    AnyBudget,
    Budgets,
    ControllerBudget,
    shared_statuses,
)
from app.features.podunavailablebudget.index import Claims, LiveOwners
from app.features.podunavailablebudget.kind import POD_UNAVAILABLE_BUDGET
from app.features.podunavailablebudget.pod_admission import DELETE_GATE, UPDATE_GATE, BudgetGuard
from app.features.podunavailablebudget.types import PodUnavailableBudget
from app.features.statefulset.kind import STATEFUL_SET
from app.kube.admission import Allowed, Decision, Denied, Operation
from app.kube.client import Client, PatchType
from app.kube.errors import NotFound
from app.kube.events import EventRecorder
from app.kube.objects import Pod, decode_pod
from app.kube.reflector import Reflector, ReflectorMetrics
from app.kube.resources import CUSTOMRESOURCEDEFINITIONS, PODS, REPLICASETS, Resource
from app.kube.store import Store
from app.kube.wire import Transport
from app.manager.process import Caches
from app.pods.disruption_budget import Disruption, DisruptionBudget
from app.sandbox.apiserver.server import ApiServer
from tests.features.podunavailablebudget.unreliable import Adverse
from tests.kit.cluster import ManagedCluster, scenarios
from tests.kit.features import context, controller_of, part_of, stores_of
from tests.kit.objects import pod_review, reference, workload_spec
from tests.kit.transports import Counting
from tests.kit.virtualtime import VirtualClock
from tests.kube.fakes import running, until
from tests.simulation.clocks import WallClock

BUDGETS = POD_UNAVAILABLE_BUDGET.resource()
NAMESPACE = "default"
#: Maximum clock skew in the tests with skewed clocks; grants last twice as long.
SECONDS_APART = 10.0
Json = dict[str, Any]


class Replica:
    """One webhook process: its cache of budgets, and its guard."""

    def __init__(self, api: ApiServer, clock: VirtualClock, seed: int, *, adverse: bool = False, **gates: bool) -> None:
        #: The unreliable network it uses, if any.
        self.network = Adverse(api.transport(), clock, Random(seed)) if adverse else None
        self.sent = Counting(self.network or api.transport())
        self.client = Client(self.sent, clock)
        self.budgets: Store[PodUnavailableBudget] = Store()
        self.refused: list[tuple[str, str]] = []
        claims = Claims(self.budgets)
        rng = Random(seed)
        owners = LiveOwners(self.client)
        self.keeper = Budgets(
            shared_statuses(self.client, self.budgets, rng),
            clock,
            resize_is_update=True,
            vertical_scaling=False,
            find_another=declared._another(claims, owners),
            waits=COMPUTED_WITHIN,
        )
        guard = BudgetGuard(
            self.keeper,
            AnyBudget(claims, self.client),
            self._note,
            removals=gates.get("removals", True),
            updates=gates.get("updates", True),
        )
        self._guards = PodGuards([guard], self._fetch)
        self.reflector = Reflector(
            self.client, BUDGETS, self.budgets, decode=PodUnavailableBudget.model_validate_json, rng=rng
        )

    def _note(self, pod: Pod, username: str) -> None:
        self.refused.append((pod.metadata.name, username))

    async def _fetch(self, namespace: str, name: str) -> Json | None:
        try:
            return await self.client.get(PODS, name, namespace)
        except NotFound:
            return None

    async def review(self, operation: Operation, subresource: str = "", **given: Any) -> Decision:
        known = {"subresource": subresource, "namespace": NAMESPACE, "username": "jane"}
        return await self._guards(
            pod_review(operation, given.pop("object", None), given.pop("old", None), **known, **given)
        )

    async def delete(self, pod: Json, **options: Any) -> Decision:
        return await self.review(Operation.DELETE, old=pod, **options)

    async def evict(self, name: str, **options: Any) -> Decision:
        eviction = {"metadata": {"name": name}, **options.pop("eviction", {})}
        return await self.review(Operation.CREATE, "eviction", name=name, object=eviction, **options)

    async def update(self, old: Json, new: Json, subresource: str = "") -> Decision:
        return await self.review(Operation.UPDATE, subresource, old=old, object=new)


class SmallCluster(ManagedCluster):
    """A cluster with budgets and webhook replicas."""

    resource: ClassVar[Resource] = BUDGETS

    def __init__(self, api: ApiServer, clock: VirtualClock, replicas: list[Replica], sent: Counting) -> None:
        super().__init__(api, clock)
        self.replicas = replicas
        #: The controller's transport.
        self.sent = sent
        #: Whether the watch of a lagging resource shows nothing.
        self.lags = False
        #: The budget check of workload controllers in this process.
        self.asked: ControllerBudget | None = None

    async def update_granted(self, name: str) -> bool:
        """Return whether a workload controller may update the Pod."""
        assert self.asked is not None
        pod = await self.user.get(PODS, name, NAMESPACE, decode=decode_pod)
        return (await self.asked.ask(pod, Disruption.UPDATE)).allowed

    async def budget(self, name: str = "shop", *, annotations: Json | None = None, **spec: Any) -> Json:
        whole = {"selector": {"matchLabels": {"app": "web"}}, "maxUnavailable": 1, **spec}
        spec = {key: value for key, value in whole.items() if value is not None}
        return await self.create(name, spec, annotations=annotations or {})

    async def replicaset(self, name: str = "web", replicas: int = 3) -> Json:
        body = {"metadata": {"name": name}, "spec": workload_spec(replicas)}
        return await self.user.create(REPLICASETS, body, NAMESPACE)

    async def pod(
        self, name: str, owner: Json | None = None, kind: str = "ReplicaSet", *, ready: bool = True, **metadata: Any
    ) -> Json:
        body: Json = {
            "metadata": {"name": name, "labels": {"app": "web"}, **metadata},
            "spec": {"containers": [{"name": "main", "image": "nginx:1"}]},
        }
        if owner is not None:
            above = owner["metadata"]
            owners = [reference(owner.get("apiVersion", "apps/v1"), kind, above["name"], above["uid"])]
            body["metadata"]["ownerReferences"] = owners
        await self.user.create(PODS, body, NAMESPACE)
        return await self.is_ready(name, ready=ready)

    async def is_ready(
        self, name: str, *, ready: bool = True, container_id: str = "", image: str = "nginx:1", since: str = ""
    ) -> Json:
        container = {"name": "main", "image": image, "imageID": "x"}
        status = {
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": str(ready), "lastTransitionTime": since or self.now()}],
            "containerStatuses": [{**container, "containerID": container_id, "ready": ready, "restartCount": 0}],
        }
        how = PatchType.STRATEGIC
        return await self.user.patch(PODS, name, {"status": status}, NAMESPACE, kind=how, subresource="status")

    def now(self) -> str:
        return self.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")

    async def made(self, count: int = 3, owner: Json | None = None) -> list[Json]:
        """Create ready Pods of one ReplicaSet with as many replicas."""
        owner = owner or await self.replicaset(replicas=count)
        return [await self.pod(f"web-{number}", owner) for number in range(count)]

    async def begin(self, count: int, max_unavailable: int = 1) -> Replica:
        """Create a budget and the Pods of a ReplicaSet, which the budget then counts; return the first replica."""
        await self.budget(maxUnavailable=max_unavailable)
        await self.made(count)
        await self.numbers(max_unavailable, count, count - max_unavailable, count)
        return self.replicas[0]

    async def get(self, name: str) -> Json:
        return await self.user.get(PODS, name, NAMESPACE)

    async def annotations(self, name: str) -> Json:
        found: Json = (await self.get(name))["metadata"].get("annotations", {})
        return found

    async def gone(self, name: str) -> None:
        """Delete the Pod at once, without asking a guard."""
        await self.user.delete(PODS, name, NAMESPACE, grace_period_seconds=0)

    async def status(self, name: str = "shop") -> Json:
        return await super().status(name)

    async def numbers(self, allowed: int, current: int, desired: int, total: int, name: str = "shop") -> Json:
        """Wait for these numbers and return the status."""
        wanted = {
            "unavailableAllowed": allowed,
            "currentAvailable": current,
            "desiredAvailable": desired,
            "totalReplicas": total,
        }

        async def look() -> Json | None:
            found = await self.status(name)
            return found if wanted.items() <= found.items() else None

        return await self.until(look, f"{name}: {wanted}")


def controller_mains(
    transport: Transport,
    clock: VirtualClock,
    rng: Random,
    *,
    controller: bool = True,
    cluster: SmallCluster | None = None,
) -> list[Coroutine[Any, Any, None]]:
    """Return the tasks of the controller and its caches, or of the caches alone. ``cluster`` gets the budget check of
    workload controllers."""
    client = Client(transport, clock)
    caches = Caches("kruise-system", declared=[declared.FEATURE])
    events = EventRecorder(client, declared.NAME)
    part = part_of(declared.FEATURE)
    gates = f"{DELETE_GATE}=true,{UPDATE_GATE}=true"
    asked = declared.controller_budget(context(part, client, stores_of(part, caches.stores.by_name), gates=gates))
    provided = {DisruptionBudget: asked}
    loop = controller_of(declared.FEATURE, client, caches.stores.by_name, events=events, provided=provided)
    if cluster is not None:
        cluster.asked = asked
    metrics = ReflectorMetrics()
    filled = [*caches.admission_reflectors(client, rng, metrics), *caches.controller_reflectors(client, rng, metrics)]
    return [*(one.run() for one in filled), events.run(), *([loop.run()] if controller else [])]


async def leaders(api: ApiServer, clock: VirtualClock, rng: Random) -> None:
    """Run one leader after the other, each with empty caches."""
    while True:
        network = Adverse(api.transport(), clock, Random(rng.getrandbits(32)))
        async with running(*controller_mains(network, clock, rng)):
            await clock.sleep(2 + rng.random() * 10)


@asynccontextmanager
async def small_cluster(
    replicas: int = 1,
    *,
    controller: bool = True,
    kinds: tuple[Json, ...] = (),
    prepare: Callable[[SmallCluster], Awaitable[None]] | None = None,
    adverse: Random | None = None,
    clocks: Random | None = None,
    **gates: bool,
) -> AsyncIterator[SmallCluster]:
    """Run the cluster on virtual time.

    ``kinds`` are further CustomResourceDefinitions. ``prepare`` runs before our components start. ``adverse`` draws
    lost and delayed messages and changes of the leader; ``clocks`` draws the clock skew of the replicas.
    """
    clock, rng = VirtualClock(), Random(7)
    api = ApiServer(clock=clock, rng=rng)
    sent = Counting(api.transport())
    made = [
        Replica(
            api,
            _wrong(clocks) if clocks else clock,
            adverse.getrandbits(32) if adverse else seed,
            adverse=adverse is not None,
            **gates,
        )
        for seed in range(replicas)
    ]
    cluster = SmallCluster(api, clock, made, sent)
    for definition in (manifest(POD_UNAVAILABLE_BUDGET), manifest(CLONE_SET), manifest(STATEFUL_SET), *kinds):
        definition["spec"]["conversion"] = {"strategy": "None"}
        await cluster.user.create(CUSTOMRESOURCEDEFINITIONS, definition)
    if prepare is not None:
        await prepare(cluster)
    mains = [one.reflector.run() for one in made]
    if adverse is not None:
        mains.append(leaders(api, clock, adverse))
    else:
        mains += controller_mains(sent, clock, rng, controller=controller, cluster=cluster)
    try:
        async with running(*mains):
            await until(lambda: all(one.budgets.ready for one in made))
            yield cluster
    finally:
        api.close()


def _wrong(rng: Random) -> WallClock:
    clock = WallClock()
    clock.ahead = rng.uniform(-SECONDS_APART, SECONDS_APART)
    return clock


def refusal(decision: Decision) -> Denied:
    """Return the decision, which must be a refusal."""
    assert isinstance(decision, Denied)
    return decision


def is_allowed(decision: Decision) -> bool:
    assert isinstance(decision, Allowed | Denied)
    return isinstance(decision, Allowed)


in_cluster = scenarios(small_cluster)
