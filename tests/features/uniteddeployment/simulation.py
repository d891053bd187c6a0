"""UnitedDeployments against faults by seed: users, late watches, lost answers, refusals, foreign objects.

The controller runs on the sandbox's API server on virtual time. While faults last, every write is checked against
the invariants; afterwards everything must settle as the specs require.
"""

from __future__ import annotations

from contextlib import suppress
from random import Random
from typing import Final

from app.kube.errors import Conflict, NotFound
from app.kube.resources import PODS
from app.kube.wire import Request
from tests.features.uniteddeployment.world import CLONE_SETS, NAMESPACE, REVISION, SUBSET, UNITED, Json, World

STEPS: Final = 25
NAMES: Final = ("a", "b", "c")


class Simulation:
    """The run of one seed."""

    def __init__(self, there: World, seed: int) -> None:
        self.there = there
        self.rng = Random(seed)
        self.reserves = self.rng.random() < 0.5
        self.topology: list[Json] = []
        #: The subsets of the last topologies, and the subset of each workload.
        self.named: list[set[str]] = []
        self.of_workload: dict[str, str] = {}
        self.troubled = True
        self.foreign = ""
        self.complaints: list[str] = []

    # ---- faults

    def refuse(self, request: Request) -> bool:
        """Return whether a request is answered with 500 before it takes effect."""
        return self.troubled and request.method != "GET" and self.rng.random() < 0.15

    def lose(self, request: Request) -> bool:
        """Return whether the answer of a request that took effect is lost."""
        return self.troubled and request.method != "GET" and self.rng.random() < 0.1

    def lag(self) -> float:
        """Return the seconds by which a watch is late."""
        return self.rng.choice((0.0, 0.0, 0.0, 0.5, 2.0)) if self.troubled else 0.0

    # ---- what users do

    def subsets(self) -> list[Json]:
        """A topology of one to three subsets that can be met."""
        names = self.rng.sample(NAMES, self.rng.randint(1, 3))
        if self.reserves:
            return [{"name": name, **({"maxReplicas": 3} if name != names[-1] else {})} for name in names]
        return [
            {"name": name, **({"replicas": 1} if name != names[-1] and self.rng.random() < 0.4 else {})}
            for name in names
        ]

    def spec(self) -> Json:
        self.topology = self.subsets()
        self.named = [*self.named, {one["name"] for one in self.topology}][-3:]
        topology: Json = {"subsets": self.topology}
        if self.reserves:
            adaptive = {"reserveUnschedulablePods": True, "rescheduleCriticalSeconds": 5, "unschedulableDuration": 20}
            topology["scheduleStrategy"] = {"type": "Adaptive", "adaptive": adaptive}
        return {"topology": topology, "replicas": self.rng.randint(3, 9)}

    async def user(self) -> None:
        """Carry out one action of a user."""
        what = self.rng.choice(("spec", "spec", "image", "partition", "delete a workload", "orphan a workload"))
        if what == "spec":
            await self.there.respecify({**self.spec(), "updateStrategy": {"manualUpdate": {"partitions": None}}})
        elif what == "image":
            container = [{"name": "main", "image": f"nginx:{self.rng.randint(1, 3)}"}]
            body = {"spec": {"template": {"spec": {"containers": container}}}}
            await self.there.respecify({"template": {"cloneSetTemplate": body}})
        elif what == "partition":
            name = self.rng.choice(self.topology)["name"]
            await self.there.respecify(
                {"updateStrategy": {"manualUpdate": {"partitions": {name: self.rng.randint(0, 2)}}}}
            )
        else:
            own = [one for one in (await self.there.client.list(CLONE_SETS, NAMESPACE)).items if self.is_own(one)]
            if not own:
                return
            name = self.rng.choice(own)["metadata"]["name"]
            if what == "delete a workload":
                await self.there.client.delete(CLONE_SETS, name, NAMESPACE)
            else:
                patch = {"metadata": {"ownerReferences": None}}
                await self.there.client.patch(CLONE_SETS, name, patch, NAMESPACE)

    async def note_workloads(self) -> None:
        for one in (await self.there.client.list(CLONE_SETS, NAMESPACE)).items:
            self.of_workload[one["metadata"]["name"]] = one["metadata"]["labels"].get(SUBSET, "")

    def is_own(self, one: Json) -> bool:
        return bool(one["metadata"]["name"] != self.foreign)

    # ---- the CloneSets' controller and the nodes

    async def workloads_work(self, *, kindly: bool = False) -> None:
        """Each CloneSet gets its Pods, some find no node, and old ones are replaced beyond the partition."""
        client = self.there.client
        pods = (await client.list(PODS, NAMESPACE)).items
        sets = [one for one in (await client.list(CLONE_SETS, NAMESPACE)).items if self.is_own(one)]
        self.of_workload |= {one["metadata"]["name"]: one["metadata"]["labels"][SUBSET] for one in sets}
        alive = {one["metadata"]["uid"] for one in sets}
        for pod in pods:
            owner = (pod["metadata"].get("ownerReferences") or [{"uid": ""}])[0]["uid"]
            if owner not in alive:
                await self._delete(pod)
        for one in sets:
            own = [pod for pod in pods if pod["metadata"]["ownerReferences"][0]["uid"] == one["metadata"]["uid"]]
            await self._scale(one, own, kindly=kindly)

    async def _delete(self, pod: Json) -> None:
        with suppress(NotFound):
            await self.there.client.delete(PODS, pod["metadata"]["name"], NAMESPACE, grace_period_seconds=0)

    async def _scale(self, one: Json, own: list[Json], *, kindly: bool) -> None:
        client, metadata = self.there.client, one["metadata"]
        wanted, template = one["spec"]["replicas"], one["spec"]["template"]
        rolling = (one["spec"].get("updateStrategy") or {}).get("rollingUpdate") or {}
        old = [pod for pod in own if pod["metadata"]["labels"][REVISION] != template["metadata"]["labels"][REVISION]]
        for pod in [*old[int(rolling.get("partition") or 0) :], *own[wanted:]]:
            await self._delete(pod)
            own = [other for other in own if other is not pod]
        reference = {
            "apiVersion": one["apiVersion"],
            "kind": "CloneSet",
            "name": metadata["name"],
            "uid": metadata["uid"],
        }
        for _ in range(wanted - len(own)):
            body = {
                "metadata": {
                    "generateName": f"{metadata['name']}-",
                    "labels": template["metadata"]["labels"],
                    "ownerReferences": [{**reference, "controller": True}],
                },
                "spec": {"containers": [{"name": "main", "image": "x"}]},
            }
            own.append(await client.create(PODS, body, NAMESPACE))
        ready = 0
        for pod in own:
            fine = kindly or self.rng.random() < 0.7
            known = {cond["type"]: cond["status"] for cond in (pod.get("status") or {}).get("conditions", ())}
            if not kindly or known.get("Ready") != "True":
                await self.there.report(pod["metadata"]["name"], ready=fine)
            ready += fine
        required = ("availableReplicas", "updatedReplicas", "updatedReadyReplicas")
        status = {**dict.fromkeys(required, 0), "replicas": len(own), "readyReplicas": ready}
        if (one.get("status") or {}) | status != (one.get("status") or {}):
            await client.patch(CLONE_SETS, metadata["name"], {"status": status}, NAMESPACE, subresource="status")

    # ---- what must hold

    async def watch_writes(self) -> None:
        """UD-32, UD-49: no foreign object is written, and no workload deleted whose subset the topology names."""
        asked = self.there.manager.requests
        for one in asked:
            name = one.path.rpartition("/")[2]
            if one.method != "GET" and name == self.foreign:
                self.complaints.append(f"{one.method} {one.path}: it is foreign")
            subset = self.of_workload.get(name, "")
            # An earlier request may still be carried out.
            if one.method == "DELETE" and subset and all(subset in names for names in self.named):
                self.complaints.append(f"{one.method} {one.path}: the topology names {subset}")
        asked.clear()

    async def run(self) -> None:
        there = self.there
        selector = {"matchLabels": {"app": "web"}}
        template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "m", "image": "x"}]}}
        self.foreign = "theirs"
        labels = {"app": "web", SUBSET: "z"}
        body = {
            "apiVersion": CLONE_SETS.api_version,
            "kind": "CloneSet",
            "metadata": {"name": self.foreign, "labels": labels},
            "spec": {"replicas": 1, "selector": selector, "template": template},
        }
        await there.client.create(CLONE_SETS, body, NAMESPACE)
        spec = self.spec()
        await there.unite(*spec["topology"]["subsets"], replicas=spec["replicas"])
        await there.respecify(spec)
        there.manager.refuse, there.manager.lose, there.manager.lag = self.refuse, self.lose, self.lag
        for _ in range(STEPS):
            try:
                await self.user()
                await self.workloads_work()
            except (NotFound, Conflict):
                pass  # it was deleted in between
            await there.settled(self.rng.choice((0.0, 0.2, 1.0, 8.0)))
            await self.note_workloads()
            await self.watch_writes()
        self.troubled = False
        for _ in range(12):
            await there.settled(10)
            await self.workloads_work(kindly=True)
        await there.settled(400)
        await self.workloads_work(kindly=True)
        await there.settled(60)
        await self.watch_writes()
        await self.at_rest()

    async def at_rest(self) -> None:
        """The subsets are those of the topology, once each, and add up to the replicas."""
        there = self.there
        united = await there.client.get(UNITED, "web", NAMESPACE)
        found = [one for one in (await there.client.list(CLONE_SETS, NAMESPACE)).items if self.is_own(one)]
        owned = [one for one in found if one["metadata"].get("ownerReferences")]
        names = sorted(one["metadata"]["labels"][SUBSET] for one in owned)
        wanted = sorted(one["name"] for one in united["spec"]["topology"]["subsets"])
        if names != wanted:
            self.complaints.append(f"subsets {names}, wanted {wanted}")
        total = sum(one["spec"]["replicas"] for one in owned)
        if total != united["spec"]["replicas"]:
            self.complaints.append(f"{total} Pods, wanted {united['spec']['replicas']}")
        revision = united["status"]["updatedRevision"]
        for one in owned:
            if one["metadata"]["labels"][REVISION] != revision:
                self.complaints.append(f"{one['metadata']['name']} is of {one['metadata']['labels'][REVISION]}")
        status = united["status"]
        if status.get("replicas") != total or status.get("reservedPods"):
            self.complaints.append(
                f"the status says {status.get('replicas')} and {status.get('reservedPods')} reserved"
            )
        if status.get("observedGeneration") != united["metadata"]["generation"]:
            self.complaints.append("the status is old")
        before = len(there.writes)
        await there.settled(1000)
        if there.writes[before:]:
            self.complaints.append(f"writes at rest: {there.writes[before:][:3]}")
