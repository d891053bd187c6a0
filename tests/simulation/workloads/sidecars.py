"""SidecarSets next to workloads: actions of users, and the invariants of sets without a rollout."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

from app.api import names
from app.features.sidecarset import feature as sidecarset
from app.features.sidecarset.kind import SIDECAR_SET
from app.kube.client import PatchType
from app.kube.errors import NotFound
from app.manager.process import Caches
from tests.simulation import invariants
from tests.simulation.pods import is_alive
from tests.simulation.script import NAMESPACE
from tests.simulation.users import UserAction, Users
from tests.simulation.workloads.judge import Judge, Review, Write
from tests.simulation.workloads.subject import manifest

Json = Mapping[str, Any]

SIDECAR_SETS = SIDECAR_SET.resource()
INJECTED_LIST = names.SIDECARSET_INJECTED_LIST


class SidecarSetJudge(Judge):
    """observedGeneration never decreases, latestRevision belongs to the set, and the status is correct at rest. An
    admitted Pod has the containers of every set in the cache of the replica that reviewed it."""

    def __init__(self, *, injection: bool = False) -> None:
        #: Whether responses to Pod reviews are checked.
        self._injection = injection
        #: By kind and uid.
        self._stored: dict[str, dict[str, dict[str, Any]]] = {"SidecarSet": {}, "Pod": {}, "ControllerRevision": {}}
        self.judged = dict.fromkeys(self._stored, self._wrote)
        #: Violations; None: unknown since the last write.
        self._untrue: list[str] | None = None

    def _wrote(self, write: Write) -> Iterator[str]:
        self._untrue = None
        write.kept_in(self._stored[write.kind])
        if write.kind == "SidecarSet" and write.before is not None and write.after is not None:
            yield from status_goes_forward(write.before, write.after)
            yield from names_its_own(write.before, write.after, [*self._stored["ControllerRevision"].values()])

    def at_rest(self, now: datetime) -> Iterable[str]:
        return self.overdue()

    def overdue(self) -> Sequence[str]:
        """Return what is wrong with the statuses, which must be corrected soon while there are no faults."""
        if self._untrue is None:
            pods = [pod for pod in self._stored["Pod"].values() if pod["metadata"].get("namespace") == NAMESPACE]
            revisions = [*self._stored["ControllerRevision"].values()]
            self._untrue = []
            for one in self._stored["SidecarSet"].values():
                self._untrue += [*counts_are_true(one, pods), *latest_is_named(one, revisions)]
        return self._untrue

    def known_to(self, caches: Caches, path: str) -> Sequence[Json]:
        """Return the sets in the cache of the answering replica."""
        if not self._injection or path != "/mutate-pod":
            return ()
        return [one.to_dict() for one in caches.stores(sidecarset.SIDECAR_SETS).list()]

    def reviewed(self, review: Review) -> Iterable[str]:
        """Check that an admitted Pod has the containers of every set the replica knew."""
        if not review.known:
            return
        request, response = review.request, review.response
        if request.get("operation") != "CREATE" or not response.get("allowed") or not request.get("object"):
            return
        for one in review.known:
            if not matches(one, request["object"]):
                continue
            patch = base64.b64decode(response.get("patch") or "").decode()
            for container in one["spec"].get("containers") or ():
                if f'"name":"{container["name"]}"' not in patch.replace(" ", ""):
                    pod_name = request["object"]["metadata"].get("name")
                    yield f"Pod {pod_name} was admitted without {container['name']}"


# ---- invariants


def matches(one: Json, pod: Json) -> bool:
    """Return whether a set of the simulation (matchLabels only) selects a Pod."""
    labels = pod["metadata"].get("labels") or {}
    wanted = (one["spec"].get("selector") or {}).get("matchLabels") or {}
    return all(labels.get(key) == value for key, value in wanted.items())


def status_goes_forward(before: Json, after: Json) -> Iterator[str]:
    """observedGeneration never decreases."""
    old = (before.get("status") or {}).get("observedGeneration") or 0
    new = (after.get("status") or {}).get("observedGeneration") or 0
    if new < old:
        yield f"SidecarSet {invariants.name(after)}: observedGeneration went from {old} back to {new}"
    if new > after["metadata"].get("generation", 0):
        yield f"SidecarSet {invariants.name(after)}: observedGeneration {new} is ahead of the generation"


def names_its_own(before: Json, after: Json, revisions: Sequence[Json]) -> Iterator[str]:
    """latestRevision names a revision that the set owns."""
    named = (after.get("status") or {}).get("latestRevision")
    if not named or named == (before.get("status") or {}).get("latestRevision"):
        return
    if not any(
        invariants.name(one) == named and invariants.owner_of(one) == after["metadata"]["uid"] for one in revisions
    ):
        yield f"SidecarSet {invariants.name(after)}: status.latestRevision is {named}, which is not its revision"


def counts_are_true(one: Json, pods: Sequence[Json]) -> Iterator[str]:
    """At rest, a SidecarSet's counts are correct."""
    mine = [pod for pod in pods if matches(one, pod) and holds(one, pod)]
    ready = [pod for pod in mine if invariants.condition(pod, "Ready") == "True" and is_rolled_out(one, pod)]
    true = {"matchedPods": len(mine), "readyPods": len(ready), "observedGeneration": one["metadata"]["generation"]}
    return invariants.status_is(f"SidecarSet {invariants.name(one)}", one.get("status") or {}, true)


def is_rolled_out(one: Json, pod: Json) -> bool:
    """Return whether a set's containers in a Pod run the images in its spec, and one twin of each pair idles."""
    images, runs = {found["name"]: found["image"] for found in pod["spec"]["containers"]}, invariants.statuses(pod)
    for container in one["spec"].get("containers") or ():
        upgrade, own = container.get("upgradeStrategy") or {}, [container["name"]]
        if upgrade.get("upgradeType") == "HotUpgrade":
            own = [f"{container['name']}-1", f"{container['name']}-2"]
            if upgrade["hotUpgradeEmptyImage"] not in [images.get(twin) for twin in own]:
                return False
        if any(not str((runs.get(twin) or {}).get("image")).endswith(images.get(twin, "")) for twin in own):
            return False
    return True


def latest_is_named(one: Json, revisions: Sequence[Json]) -> Iterator[str]:
    """At rest, latestRevision names the newest revision."""
    mine = [revision for revision in revisions if invariants.owner_of(revision) == one["metadata"]["uid"]]
    # Two revisions have the same number if the cache did not show the first when the second was created.
    newest = max(mine, key=_age, default=None)
    named, own = (one.get("status") or {}).get("latestRevision"), newest and invariants.name(newest)
    if newest is None or named != own:
        yield f"SidecarSet {invariants.name(one)} at rest: status.latestRevision is {named}, newest is {own}"


def _age(revision: Json) -> tuple[int, str, str]:
    metadata = revision["metadata"]
    return int(revision["revision"]), metadata.get("creationTimestamp", ""), metadata["name"]


def holds(one: Json, pod: Json) -> bool:
    """Return whether a Pod was injected by a set and is alive."""
    listed = (pod["metadata"].get("annotations") or {}).get(INJECTED_LIST, "")
    return invariants.name(one) in listed.split(",") and is_alive(pod)


# ---- actions of users


def sidecar_set(name: str, app: str, image: str) -> dict[str, Any]:
    """Return a set that adds one container to the Pods of an app."""
    spec = {
        "selector": {"matchLabels": {"app": app}},
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": NAMESPACE}},
        "containers": [{"name": name, "image": image}],
        "updateStrategy": {"type": "NotUpdate"},
    }
    return manifest(SIDECAR_SET, name, spec)


async def _create_set(users: Users, name: str, app: str, image: str) -> None:
    await users.admin.create(SIDECAR_SETS, sidecar_set(name, app, image))


async def _update_set(users: Users, name: str, image: str) -> None:
    patch = [{"op": "replace", "path": "/spec/containers/0/image", "value": image}]
    await users.admin.patch(SIDECAR_SETS, name, patch, kind=PatchType.JSON)


async def _delete_set(users: Users, name: str) -> None:
    await users.admin.delete(SIDECAR_SETS, name)


async def _replace_set(users: Users, name: str, app: str, image: str) -> None:
    """``kubectl replace --force``: a set with the same name appears a moment later."""
    with suppress(NotFound):
        await users.admin.delete(SIDECAR_SETS, name)
    await users.admin.create(SIDECAR_SETS, sidecar_set(name, app, image))


async def _garble_status(users: Users, name: str, image: str) -> None:
    del image
    await users.admin.patch(SIDECAR_SETS, name, {"status": {"matchedPods": 99}}, subresource="status")


USER_ACTIONS: Mapping[str, UserAction] = {
    "create set": UserAction(_create_set, 10.0),
    "update set": UserAction(_update_set, 10.0),
    "delete set": UserAction(_delete_set),
    "replace set": UserAction(_replace_set),
    "garble status": UserAction(_garble_status),
}
