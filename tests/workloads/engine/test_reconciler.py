"""What a reconcile goes by: own objects, and only those that are not going."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from app.kube.controller import Result
from app.kube.store import Change
from app.workloads.cloneset.snapshot import CloneSetSnapshot
from app.workloads.engine.outcome import Outcome
from tests.kube.fakes import virtual
from tests.workloads.cloneset.test_shell import KEY, claim_of, filled, pod_of


async def snapshot_seen(shell: Any, monkeypatch: pytest.MonkeyPatch) -> CloneSetSnapshot:
    """What the plan is asked about."""
    seen: list[CloneSetSnapshot] = []

    async def reconcile(snapshot: CloneSetSnapshot) -> Result | None:
        seen.append(snapshot)
        return None

    monkeypatch.setattr(shell.reconciler, "reconcile", reconcile)
    await shell.reconcile("hooked", "moving")
    return seen[0]


def claim_like(found: dict[str, Any], instance: str, **metadata: Any) -> Any:
    """A claim of an instance, owned as the first Pod would be with that metadata."""
    return claim_of({**found, "Pod": [{"metadata": {**found["Pod"][0]["metadata"], **metadata}}]}, instance)


@pytest.mark.behaviour("CS-189", "CS-53")
@virtual
async def test_claims_that_go_and_those_of_another_kind_are_not_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    shell, found = filled()
    forged = [{**found["Pod"][0]["metadata"]["ownerReferences"][0], "kind": "StatefulSet"}]
    here = claim_of(found, "aaaaa")
    shell.caches.claims.put(here)
    shell.caches.claims.put(claim_like(found, "bbbbb", ownerReferences=forged))
    shell.caches.claims.put(claim_of(found, "ccccc", deletionTimestamp="2026-01-01T00:00:00Z"))
    snapshot = await snapshot_seen(shell, monkeypatch)
    assert list(snapshot.claims) == [here]


@pytest.mark.behaviour("CS-53")
@virtual
async def test_pods_of_another_kind_are_not_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    shell, found = filled()
    forged = copy.deepcopy(found["Pod"][0])
    forged["metadata"] |= {"name": "hooked-forged", "uid": "forged"}
    forged["metadata"]["ownerReferences"][0]["kind"] = "StatefulSet"
    shell.show(forged)
    snapshot = await snapshot_seen(shell, monkeypatch)
    assert len(snapshot.pods) == len(found["Pod"])
    assert "hooked-forged" not in {pod.name for pod in snapshot.pods}


@pytest.mark.behaviour("CS-49")
def test_a_claim_that_begins_to_go_concerns_its_workload() -> None:
    shell, found = filled()
    there, going = claim_of(found, "aaaaa"), claim_of(found, "aaaaa", deletionTimestamp="2026-01-01T00:00:00Z")
    assert list(shell.reconciler.mappers.keys_for_claim(Change(there, there))) == []
    assert list(shell.reconciler.mappers.keys_for_claim(Change(there, going))) == [KEY]


@pytest.mark.behaviour("CS-63")
@pytest.mark.parametrize("scaled", [True, False])
@virtual
async def test_after_scaling_the_current_revision_is_still_needed(
    scaled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was created just now may be at a revision that the status no longer names."""
    shell, found = filled()
    owner = copy.deepcopy(found["CloneSet"][0])
    owner["metadata"] |= {"generation": 2, "resourceVersion": "700000"}
    owner["spec"]["template"]["spec"]["containers"][0]["image"] = "nginx:9"
    shell.show(owner)
    needed: list[int] = []

    async def scale(*_: Any) -> Outcome:
        return Outcome(changed=scaled)

    async def update(*_: Any) -> Outcome:
        return Outcome()

    async def clean_up(_snapshot: Any, revisions: Any) -> None:
        needed.append(len({one.name for one in revisions}))

    monkeypatch.setattr(shell.reconciler._scaler, "carry_out", scale)
    monkeypatch.setattr(shell.reconciler._updater, "update", update)
    monkeypatch.setattr(shell.reconciler._reporter, "clean_up", clean_up)
    await shell.reconcile("hooked", "moving")
    assert needed == [2 if scaled else 1]


@pytest.mark.behaviour("CS-57")
@pytest.mark.parametrize(
    ("live", "given_up"),
    [({"resourceVersion": "1"}, True), ({"resourceVersion": "999999"}, False), ({"uid": "another"}, False)],
    ids=["as old", "newer", "a namesake"],
)
@virtual
async def test_a_version_is_given_up_only_if_the_api_server_has_none_that_is_newer(
    live: dict[str, str], given_up: bool
) -> None:
    shell, found = filled(expectation_timeout=60.0)
    expected, uid = shell.reconciler.writer.expectations, found["CloneSet"][0]["metadata"]["uid"]
    pod = pod_of(found["Pod"][0])
    expected.expect_version(uid, pod_of(found["Pod"][0], resourceVersion="999999").metadata)
    await shell.reconcile("hooked", "moving")
    path = f"/api/v1/namespaces/moving/pods/{pod.metadata.name}"
    metadata = {**found["Pod"][0]["metadata"], "resourceVersion": "1", **live}
    shell.server.stored[path] = {**found["Pod"][0], "metadata": metadata}
    await shell.clock.sleep(61)
    await shell.reconcile("hooked", "moving")
    assert (expected.versions.unsatisfied(pod.metadata) is None) is given_up
