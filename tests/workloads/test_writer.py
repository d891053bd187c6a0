"""Writes apply only to the observed object, never to another of the same name."""

from __future__ import annotations

import asyncio
import copy
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import Raw

from app.features.cloneset.plan.settings import Gates, resolve_spec
from app.kube.errors import KubeError, RequestInfo, ServerError, TransportError
from app.kube.objects import ControllerRevision, ObjectMeta, OwnerReference, Pod
from app.pods.disruption_budget import Disruption, Verdict
from app.pods.revisions import revision_of
from app.workloads.state import Metrics, Outcome, PodHeldError, gather_results, outcome_of
from app.workloads.steps import Step, StepKind, UpdatePlan
from app.workloads.updater import Updater
from tests.features.cloneset.test_watches import claim_of, filled, pod_of
from tests.kube.fakes import virtual

PODS = "/api/v1/namespaces/moving/pods/"


@virtual
async def test_an_unexpected_error_is_raised_after_all_writes_have_finished() -> None:
    finished: list[str] = []

    async def fail() -> None:
        raise ValueError("unexpected")

    async def write() -> None:
        await asyncio.sleep(1)
        finished.append("written")

    with pytest.raises(ValueError, match="unexpected"):
        await gather_results([fail(), write()])
    assert finished == ["written"]


@pytest.mark.behaviour("PUB-92")
@virtual
async def test_a_pod_held_by_a_budget_is_kept_without_an_error() -> None:
    shell, found = filled()
    owner, pod = shell.caches.workloads.list()[0], pod_of(found["Pod"][0])
    writer = shell.reconciler.writer
    asked: list[Disruption] = []

    class Full:
        async def ask(self, pod: Pod, disruption: Disruption) -> Verdict:
            asked.append(disruption)
            return Verdict(False, "the budget is used up")

    writer.budget = Full()
    (error,) = await gather_results([writer.delete_pod(owner, pod)])
    assert isinstance(error, PodHeldError)
    assert asked == [Disruption.DELETE]
    assert shell.writes == []
    assert not writer.expectations.deletion_observed(owner.metadata.uid, pod.metadata.name)
    outcome = outcome_of([error])
    assert (outcome.changed, outcome.error, outcome.message, outcome.requeue_after) == (False, None, "", [1.0])

    lost = TransportError(RequestInfo("DELETE", PODS), "no response")
    assert outcome_of([error, lost]).changed  # it may have been carried out

    settings = SimpleNamespace(lifecycle=None)
    snapshot: Any = SimpleNamespace(revision_of=lambda _: None, resolved=SimpleNamespace(settings=settings))
    snapshot.owner = SimpleNamespace(uid=owner.metadata.uid)
    facts: Any = SimpleNamespace(pod=pod)
    updater = Updater(writer, Metrics())
    plan = UpdatePlan("hash", (Step(StepKind.PREPARE, facts),))
    outcome = await updater.carry_out(snapshot, plan, Outcome(), ())
    assert (outcome.changed, outcome.error, outcome.requeue_after) == (False, None, [1.0])
    assert shell.writes == []


@virtual
async def test_a_write_without_response_does_not_concern_another_pod_of_that_name() -> None:
    shell, found = filled()
    pod = pod_of(found["Pod"][0])
    namesake = copy.deepcopy(found["Pod"][0])
    namesake["metadata"] |= {"uid": "another"}
    shell.server.stored[PODS + pod.metadata.name] = namesake
    shell.server.lost = lambda request: request.method == "PATCH"
    with pytest.raises(ServerError):
        await shell.reconciler.writer.mark_for_deletion("owner", pod)
    assert not shell.reconciler.writer.expectations.written


@pytest.mark.behaviour("CS-52", "CS-105")
@pytest.mark.parametrize("refusal", [None, (404, "NotFound"), (409, "Conflict"), (403, "Forbidden")])
@virtual
async def test_a_write_of_a_claim_is_expected_in_the_cache_unless_it_failed(refusal: tuple[int, str] | None) -> None:
    shell, found = filled()
    writer, owner, claim = shell.reconciler.writer, shell.caches.workloads.list()[0], claim_of(found, "aaaaa")
    path = "/api/v1/namespaces/moving/persistentvolumeclaims"
    if refusal is not None:
        shell.server.answer |= dict.fromkeys((path, f"{path}/{claim.metadata.name}"), refusal)
    for write in (
        writer.create_claim(owner, {"metadata": {"name": claim.metadata.name}}),
        writer.delete_claim(owner, claim),
    ):
        with suppress(KubeError):
            await write
        assert (writer.expectations.scale.unsatisfied(owner.metadata.uid) is None) is (refusal is not None)
        writer.expectations.forget(owner.metadata.uid)


# ---- revisions


def revision(name: str, controller: OwnerReference | None = None, data: bytes = b"{}") -> ControllerRevision:
    metadata = ObjectMeta(
        name=name,
        namespace="moving",
        uid=f"uid-{name}",
        resource_version="7",
        labels={"app": "hooked"},
        owner_references=(controller,) if controller is not None else (),
    )
    return ControllerRevision(metadata=metadata, data=Raw(data), revision=1)


def owned_by(kind: str, uid: str, name: str = "hooked", group: str = "apps.kruise.io") -> OwnerReference:
    return OwnerReference(api_version=f"{group}/v1beta1", kind=kind, name=name, uid=uid, controller=True)


def history_of(shell: Any) -> tuple[Any, Any, str]:
    owner = shell.caches.workloads.list()[0]
    return shell.reconciler.history, resolve_spec(owner, Gates()), owner.metadata.uid


@pytest.mark.behaviour("PM-10")
@pytest.mark.parametrize(
    ("controller", "is_ours"), [(None, True), ("own", True), ("another", False)], ids=["an orphan", "ours", "another's"]
)
@virtual
async def test_a_revision_missing_from_the_cache_is_ours_unless_controlled_by_others(
    controller: str | None, is_ours: bool
) -> None:
    shell, found = filled()
    history, resolved, uid = history_of(shell)
    stored = copy.deepcopy(found["ControllerRevision"][0])
    stored["metadata"] |= {"name": "hooked-late", "ownerReferences": []}
    if controller is not None:
        fields = {"uid": uid if controller == "own" else controller, "controller": True, "name": "hooked"}
        stored["metadata"]["ownerReferences"] = [{"apiVersion": "apps.kruise.io/v1beta1", "kind": "CloneSet", **fields}]
    shell.server.stored["/apis/apps/v1/namespaces/moving/controllerrevisions/hooked-late"] = stored
    assert await history.is_recorded(resolved.content, "hooked-late") is is_ours


@pytest.mark.behaviour("PM-93")
@virtual
async def test_only_own_observed_revisions_are_deleted() -> None:
    shell, _ = filled()
    history, resolved, uid = history_of(shell)
    ours = revision_of(revision("hooked-ours", owned_by("CloneSet", uid)))
    orphan = revision_of(revision("hooked-orphan"))
    await history.truncate(resolved.content, [orphan, ours], set(), 0)
    path = "/apis/apps/v1/namespaces/moving/controllerrevisions/hooked-ours"
    assert shell.writes == [("DELETE", path)]
    assert [body["preconditions"] for body in shell.bodies("DELETE", path)] == [{"uid": "uid-hooked-ours"}]


@pytest.mark.behaviour("PM-85")
@virtual
async def test_a_revision_with_a_forged_owner_enters_no_history() -> None:
    shell, _ = filled()
    history, resolved, uid = history_of(shell)
    forged = {"kind": owned_by("StatefulSet", uid), "name": owned_by("CloneSet", uid, name="other")}
    for field, reference in forged.items():
        shell.caches.revisions.put(revision(f"hooked-{field}", reference))
    known = {one.name for one in history.revisions(resolved.content, resolved.selector)}
    assert not known & {f"hooked-{field}" for field in forged}


@pytest.mark.behaviour("CS-72")
@pytest.mark.parametrize(("controller", "used"), [
    (None, True),
    (owned_by("CloneSet", "an older one"), True),
    (owned_by("CloneSet", "another", name="other"), False),
    (owned_by("StatefulSet", "another"), False),
    (owned_by("CloneSet", "another", group="example.com"), False),
], ids=["an orphan", "of a deleted set", "another set's", "a StatefulSet's", "another group's"])  # fmt: skip
def test_a_revision_of_our_name_is_used_only_if_it_is_ours(controller: OwnerReference | None, used: bool) -> None:
    shell, _ = filled()
    content = resolve_spec(shell.caches.workloads.list()[0], Gates()).content
    assert bool(content.reading(revision("hooked-x", controller)).data) is used
