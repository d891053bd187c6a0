"""A reconcile uses only objects that the workload owns and that are not being deleted."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from app.features.cloneset.reconcile import CloneSetReconciler
from app.features.cloneset.writes import Observed
from app.kube.controller import Result
from app.kube.errors import Conflict, Forbidden, RequestInfo, Status, TransportError
from app.kube.store import Change
from app.pods.admission import UNTRACKED
from app.workloads.reconciler import result_of
from app.workloads.state import CONFLICT_DELAY, CREATION_BACKOFF, Outcome
from tests.features.cloneset.test_watches import KEY, changed, claim_of, filled, pod_of
from tests.kube.fakes import virtual


async def snapshot_seen(shell: Any, monkeypatch: pytest.MonkeyPatch) -> Observed:
    """Reconcile, and return the snapshot passed to the plan."""
    seen: list[Observed] = []

    async def reconcile(snapshot: Observed) -> Result | None:
        seen.append(snapshot)
        return None

    monkeypatch.setattr(shell.reconciler, "reconcile", reconcile)
    await shell.reconcile()
    return seen[0]


@pytest.mark.behaviour("CS-189", "MGR-61")
@virtual
async def test_terminating_claims_and_foreign_objects_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    shell, found = filled()
    one = found["Pod"][0]
    forged = [{**one["metadata"]["ownerReferences"][0], "kind": "StatefulSet"}]
    here = claim_of(found, "aaaaa")
    for claim in (
        here,
        claim_of(found, "bbbbb", ownerReferences=forged),
        claim_of(found, "ccccc", deletionTimestamp="2026-01-01T00:00:00Z"),
    ):
        shell.caches.claims.put(claim)
    metadata = {**one["metadata"], "name": "hooked-forged", "uid": "forged", "ownerReferences": forged}
    shell.show({**one, "metadata": metadata})
    snapshot = await snapshot_seen(shell, monkeypatch)
    assert list(snapshot.claims) == [here]
    assert {pod.name for pod in snapshot.pods} == {pod["metadata"]["name"] for pod in found["Pod"]}


@pytest.mark.behaviour("PM-93")
@pytest.mark.parametrize("scaled", [True, False])
@virtual
async def test_after_scaling_the_current_revision_is_still_needed(
    scaled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """New Pods may have a revision that the status no longer names."""
    shell, found = filled()
    shell.show(changed(found, "nginx:9"))
    needed: list[int] = []

    async def scale(*_: Any) -> Outcome:
        return Outcome(changed=scaled)

    async def update(*_: Any) -> Outcome:
        return Outcome()

    async def clean_up(_snapshot: Any, revisions: Any) -> None:
        needed.append(len({one.name for one in revisions}))

    monkeypatch.setattr(shell.reconciler._scaler, "carry_out", scale)
    monkeypatch.setattr(shell.reconciler, "_update", update)
    monkeypatch.setattr(shell.reconciler, "_clean_up", clean_up)
    await shell.reconcile()
    assert needed == [2 if scaled else 1]


@pytest.mark.behaviour("CS-57", "PM-96")
@pytest.mark.parametrize(
    ("live", "dropped"),
    [({"resourceVersion": "1"}, True), ({"resourceVersion": "999999"}, False), ({"uid": "another"}, False)],
    ids=["not newer", "newer", "another Pod"],
)
@virtual
async def test_an_expected_version_is_dropped_only_if_the_api_server_has_none_newer(
    live: dict[str, str], dropped: bool
) -> None:
    shell, found = filled(expectation_timeout=60.0)
    expected, uid = shell.reconciler.writer.expectations, found["CloneSet"][0]["metadata"]["uid"]
    pod = pod_of(found["Pod"][0])
    expected.expect_version(uid, pod_of(found["Pod"][0], resourceVersion="999999").metadata)
    await shell.reconcile()
    path = f"/api/v1/namespaces/moving/pods/{pod.metadata.name}"
    metadata = {**found["Pod"][0]["metadata"], "resourceVersion": "1", **live}
    shell.server.stored[path] = {**found["Pod"][0], "metadata": metadata}
    await shell.clock.sleep(61)
    await shell.reconcile()
    assert (expected.versions.unsatisfied(pod.metadata) is None) is dropped


@pytest.mark.behaviour("CS-65")
def test_the_next_reconcile_is_due_at_the_earliest_time() -> None:
    sent = RequestInfo("PATCH", "/x")
    waiting, conflict = Outcome(requeue_after=[5.0, 0.0]), Outcome(error=Conflict(sent, Status(code=409)))
    assert result_of([waiting, Outcome()], [9.0, -1.0], retry=False) == Result(requeue_after=5.0)
    assert result_of([waiting, conflict], [9.0], retry=False) == Result(requeue_after=CONFLICT_DELAY)
    assert result_of([Outcome()], [0.0], retry=False) is None
    refused = TransportError(sent, "no response")
    for held, expected in ((0.0, 0.0), (3.0, 3.0), (60.0, 5.0)):
        refused.retry_in = held
        with pytest.raises(TransportError):
            result_of([Outcome(error=refused), waiting], [0.0], retry=True)
        assert refused.retry_in == expected


@pytest.mark.behaviour("CS-65")
@virtual
async def test_events_do_not_repeat_a_refused_creation_before_its_back_off_ends() -> None:
    shell, found = filled()
    shell.show(changed(found, replicas=5))
    shell.server.refuse = lambda asked: asked.method == "POST" and asked.path.endswith("/pods")
    for attempt in range(3):
        with pytest.raises(Forbidden) as refused:
            await shell.reconcile()
        assert f"fieldManager={UNTRACKED}" in str(refused.value)
        assert refused.value.retry_in == pytest.approx(CREATION_BACKOFF * 2**attempt)
        waits = await shell.reconcile()
        assert waits == Result(requeue_after=refused.value.retry_in)
        assert shell.names("POST").count("pods") == attempt + 1
        await shell.clock.sleep(waits.requeue_after)


# ---- adopting


#: Another controller.
OTHERS = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "other", "controller": True}


class Adopting(CloneSetReconciler):
    """Adopts Pods whose name starts with that of the CloneSet."""

    adopts = True

    def may_adopt(self, resolved: Any, pod: Any) -> bool:
        return pod.metadata.name.startswith(resolved.owner.name)


@pytest.mark.behaviour("PM-105", "PM-109", "PM-110")
@pytest.mark.parametrize(
    ("live", "change", "adopted"),
    [
        pytest.param({}, {}, True, id="an orphan"),
        pytest.param({}, {"name": "other-x"}, False, id="another name"),
        pytest.param({}, {"deletionTimestamp": "2026-01-01T00:00:00Z"}, False, id="terminating"),
        pytest.param({}, {"labels": {"app": "other"}}, False, id="not matching"),
        pytest.param({}, {"ownerReferences": [OTHERS]}, False, id="another controller"),
        pytest.param({"uid": "another"}, {}, False, id="another owner"),
        pytest.param({"deletionTimestamp": "2026-01-01T00:00:00Z"}, {}, False, id="terminating owner"),
    ],
)
@virtual
async def test_orphaned_pods_are_adopted_after_the_owner_was_read(
    live: dict[str, str], change: dict[str, Any], adopted: bool
) -> None:
    shell, found = filled()
    (owner,) = found["CloneSet"]
    shell.server.stored["/apis/apps.kruise.io/v1beta1/namespaces/moving/clonesets/hooked"] = {
        **owner,
        "metadata": {**owner["metadata"], **live},
    }
    reconciler = Adopting(shell.reconciler.client, shell.caches, shell.recorder, Random(1))
    orphan = found["Pod"][0]
    orphan["metadata"] |= {"name": "hooked-orphan", "uid": "orphan", "ownerReferences": [], **change}
    shell.show(orphan)
    await reconciler(KEY)
    adoptions = [body["metadata"] for body in shell.bodies("PATCH", f"/pods/{orphan['metadata']['name']}")]
    assert [one["uid"] for one in adoptions] == (["orphan"] if adopted else [])
    assert all(one["ownerReferences"][0]["uid"] == owner["metadata"]["uid"] for one in adoptions)
    if adopted:
        assert shell.writes == [("PATCH", "/api/v1/namespaces/moving/pods/hooked-orphan")]


@pytest.mark.behaviour("PM-109")
@pytest.mark.parametrize("labels", [None, {"app": "other"}])
@virtual
async def test_an_orphaned_pod_enqueues_the_sets_that_may_adopt_it(labels: dict[str, str] | None) -> None:
    shell, found = filled()
    reconciler = Adopting(shell.reconciler.client, shell.caches, shell.recorder, Random(1))
    await reconciler(KEY)
    orphan = pod_of(found["Pod"][0], ownerReferences=[], **({"labels": labels} if labels else {}))
    assert list(reconciler.mappers.keys_for_pod(Change(None, orphan))) == ([] if labels else [KEY])
    assert list(shell.reconciler.mappers.keys_for_pod(Change(None, orphan))) == []


@pytest.mark.behaviour("PM-105", "PM-106", "PM-107", "PM-108")
@pytest.mark.parametrize("refused", [False, True])
@pytest.mark.parametrize(("going", "change", "released"), [
    (False, {}, False),
    (False, {"labels": {"app": "other"}}, True),
    (True, {"labels": {"app": "other"}}, False),
    (False, {"labels": {"app": "other"}, "ownerReferences": [OTHERS]}, False),
], ids=["matching", "not matching", "terminating owner", "another controller"])  # fmt: skip
@virtual
async def test_only_own_unmatched_pods_are_released_and_none_by_a_terminating_owner(
    going: bool, change: dict[str, Any], released: bool, refused: bool
) -> None:
    shell, found = filled()
    (owner,) = found["CloneSet"]
    if going:
        owner["metadata"] |= {"resourceVersion": "9999999", "deletionTimestamp": "2026-01-01T00:00:00Z"}
        shell.show(owner)
    pod = found["Pod"][0]
    pod["metadata"] |= {"resourceVersion": "9999999", **change}
    shell.show(pod)
    shell.server.refuse = lambda asked: (
        refused and b"ownerReferences" in (asked.body or b"") and asked.method == "PATCH"
    )
    result = await shell.reconcile()
    assert (result == Result(requeue=True)) is (released and refused)
    patches = [body["metadata"] for body in shell.bodies("PATCH", f"/pods/{pod['metadata']['name']}")]
    references = [metadata["ownerReferences"] for metadata in patches if "ownerReferences" in metadata]
    assert references == ([[{"$patch": "delete", "uid": owner["metadata"]["uid"]}]] if released else [])
