"""Invariants of the plan, from any state of a small cluster.

In each step the plan's actions are carried out at once, or the cluster changes: Pods become ready or break,
terminating Pods disappear, hooks are released, a user changes the set. The plan must never make two Pods of one
ordinal or a Pod of a reserved one, must never make more Pods unavailable than is allowed, and must keep the partition
and the order.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import given
from hypothesis import settings as tuned
from hypothesis import strategies as st

from app.features.statefulset.plan.scale import plan_scaling
from app.features.statefulset.plan.settings import Replicas, Settings
from app.features.statefulset.plan.update import candidates, plan_update
from app.pods.ordinals import ordinal_of
from app.workloads.settings import UpdatePolicy
from app.workloads.steps import StepKind
from tests.features.statefulset.samples import HOOKS, NEW, NOW, OLD, pod, replicas, settings
from tests.nightly import examples

Json = dict[str, Any]
STATES = ("Normal", "PreparingUpdate", "Updating", "Updated", "PreparingDelete", "PreparingNormal", "")


@st.composite
def any_settings(draw: st.DrawFn) -> Settings:
    ordered = draw(st.booleans())
    return settings(
        draw(st.integers(0, 7)),
        start=draw(st.sampled_from((0, 0, 3))),
        reserve=draw(st.lists(st.integers(0, 8) | st.sampled_from(("1-2", "4-6")), max_size=3)),
        ordered=ordered,
        repairs=ordered and draw(st.booleans()),
        scale_limit=None if ordered else draw(st.sampled_from((None, 1, 2, "50%"))),
        on_delete=draw(st.integers(0, 6)) == 0,
        partition=draw(st.integers(0, 5)),
        limit=1 if ordered else draw(st.sampled_from((1, 2, 3, "10%", "50%", "100%"))),
        policy=draw(st.sampled_from(UpdatePolicy)),
        paused=draw(st.integers(0, 6)) == 0,
        unordered=not ordered and draw(st.integers(0, 3)) == 0,
        min_ready=draw(st.sampled_from((0, 0, 30))),
        lifecycle=draw(st.sampled_from((None, HOOKS))),
    )


def any_pod(ordinal: int) -> st.SearchStrategy[Json]:
    return st.builds(
        pod,
        st.just(ordinal),
        st.sampled_from((OLD, NEW)),
        ready=st.integers(0, 3).map(bool),
        ready_for=st.sampled_from((5.0, 1000.0)),
        phase=st.sampled_from(("Running", "Running", "Running", "Running", "Pending", "Failed")),
        terminating=st.integers(0, 6).map(lambda n: n == 0),
        state=st.sampled_from(("Normal", "Normal", "Normal", *STATES)),
        marked=st.integers(0, 6).map(lambda n: n == 0),
        hooked=st.booleans(),
    )


@dataclass
class Cluster:
    """Pods by ordinal, and what the plan did to them in the last step."""

    chosen: Settings
    pods: dict[int, Json]
    created: list[int] = field(default_factory=list)
    deleted: list[int] = field(default_factory=list)
    updated: list[int] = field(default_factory=list)

    @property
    def replicas(self) -> Replicas:
        return replicas(self.chosen, list(self.pods.values()))

    def unavailable(self) -> set[int]:
        """Return the slots without a usable Pod."""
        usable = {one.ordinal for one in self.replicas.wanted if one.usable(NOW)}
        return set(self.chosen.slots) - usable

    def step(self) -> None:
        self.created, self.deleted, self.updated = [], [], []
        before = self.replicas
        plan = plan_scaling(before, current=OLD, update=NEW, now=NOW)
        for ordinal, new in plan.create:
            assert ordinal not in self.pods, "two Pods of one ordinal"
            self.created.append(ordinal)
            self.pods[ordinal] = pod(ordinal, NEW if new else OLD, phase="Pending")
        for one in plan.delete:
            self._delete(one.ordinal)
        for one in plan.prepare:
            self._label(one.ordinal, "PreparingDelete")
            self.deleted.append(one.ordinal)
        for one in plan.cancel_deletion:
            self._label(one.ordinal, "Normal")
        if plan.create or plan.delete or plan.prepare or plan.cancel_deletion:
            return
        listed = candidates(before, current=OLD, update=NEW)
        begin, held_by = not plan.blocked, plan.held_by
        rollout = plan_update(
            before, listed, update=NEW, now=NOW, obstacle=lambda _: None, begin=begin, held_by=held_by
        ).update
        for step in rollout.steps:
            ordinal = ordinal_of("web", step.pod.name)
            self.updated.append(ordinal)
            match step.kind:
                case StepKind.RECREATE if step.pod.delete_hooked:
                    self._label(ordinal, "PreparingDelete")
                case StepKind.RECREATE:
                    self._delete(ordinal)
                case StepKind.PREPARE | StepKind.REARM:
                    self._label(ordinal, "PreparingUpdate")
                case StepKind.IN_PLACE:
                    self._label(ordinal, "Updating")
                    self.pods[ordinal]["metadata"]["labels"]["controller-revision-hash"] = f"web-{NEW}"

    def is_marked(self, ordinal: int) -> bool:
        return "apps.kruise.io/specified-delete" in self.pods[ordinal]["metadata"]["labels"]

    def _label(self, ordinal: int, state: str) -> None:
        self.pods[ordinal]["metadata"]["labels"]["lifecycle.apps.kruise.io/state"] = state

    def _delete(self, ordinal: int) -> None:
        assert "deletionTimestamp" not in self.pods[ordinal]["metadata"], "deleted twice"
        self.pods[ordinal]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        self.deleted.append(ordinal)

    def move(self, data: st.DataObject) -> None:
        """Act as kubelets and hooks."""
        for ordinal, found in list(self.pods.items()):
            if not data.draw(st.booleans()):
                continue
            if "deletionTimestamp" in found["metadata"]:
                del self.pods[ordinal]
                continue
            state = found["metadata"]["labels"]["lifecycle.apps.kruise.io/state"]
            if state in ("Updating", "Updated", "PreparingNormal"):
                self._label(ordinal, "Normal")
            found["metadata"].pop("finalizers", None)
            found["status"] = pod(ordinal)["status"]


clusters = any_settings().flatmap(
    lambda chosen: st.lists(st.integers(0, 12), unique=True, max_size=9).flatmap(
        lambda ordinals: st.fixed_dictionaries({ordinal: any_pod(ordinal) for ordinal in ordinals}).map(
            lambda pods: Cluster(chosen, pods)
        )
    )
)


@tuned(max_examples=examples(100), deadline=None)
@given(clusters, st.data())
def test_invariants_hold_in_any_state(cluster: Cluster, data: st.DataObject) -> None:
    for _ in range(data.draw(st.integers(1, 8))):
        before, chosen = cluster.replicas, cluster.chosen
        out = cluster.unavailable()
        at = {one.ordinal: one.facts.revision for one in before.wanted}
        usable = {one.ordinal for one in before.everyone if one.available(NOW) and not one.terminating}
        begun = {one.ordinal for one in before.everyone if one.facts.lifecycle.startswith("Preparing")}
        cluster.step()
        # No Pod has a reserved or surplus ordinal.
        assert all(ordinal in chosen.slots for ordinal in cluster.created)
        # The update keeps maxUnavailable; Pods that were unavailable before do not count.
        taken = set(cluster.updated) - out
        assert not taken or len(out | taken) <= chosen.update_limit
        # The partition is kept: Pods within it are updated only if they are marked.
        if not chosen.unordered:
            for ordinal in cluster.updated:
                assert cluster.is_marked(ordinal) or (
                    chosen.slots.rank(ordinal) > chosen.partition and at[ordinal] != NEW
                )
        elif not any(map(cluster.is_marked, cluster.pods)):
            old = sum(revision != NEW for revision in at.values())
            assert not cluster.updated or old - len(cluster.updated) >= min(chosen.partition, chosen.replicas) - len(
                out - at.keys()
            )
        if chosen.on_delete or chosen.paused:
            assert all(cluster.is_marked(ordinal) for ordinal in cluster.updated)
        if chosen.ordered:
            # One Pod at a time, except for begun ones, and no Pod is created above an unavailable one.
            assert len({*cluster.created, *cluster.deleted, *cluster.updated} - begun) <= 1
            for ordinal in cluster.created:
                assert all(below in usable for below in chosen.slots if below < ordinal)
            for ordinal in set(cluster.deleted) - set(cluster.updated):
                if ordinal not in chosen.slots:
                    assert ordinal == max(one.ordinal for one in before.condemned)
        elif chosen.scale_limit is not None and cluster.created:
            there = [n for n in chosen.slots if n < max(cluster.created)]
            waiting = [n for n in there if n not in usable and n not in cluster.created]
            assert len(waiting) + len(cluster.created) <= chosen.scale_limit
        cluster.move(data)


@tuned(max_examples=40, deadline=None)
@given(clusters)
def test_every_cluster_converges(cluster: Cluster) -> None:
    """With working kubelets and no faults, all slots finally have an available, up-to-date Pod."""
    for found in cluster.pods.values():
        found["metadata"].pop("finalizers", None)
        found["metadata"]["labels"].pop("apps.kruise.io/specified-delete", None)
    for _ in range(80):
        cluster.step()
        for ordinal, found in list(cluster.pods.items()):
            if "deletionTimestamp" in found["metadata"]:
                del cluster.pods[ordinal]
                continue
            state = found["metadata"]["labels"]["lifecycle.apps.kruise.io/state"]
            if state not in ("PreparingDelete", "Normal"):
                cluster._label(ordinal, "Normal")
            if found["status"]["phase"] != "Failed":
                found["status"] = pod(ordinal)["status"]
    assert sorted(cluster.pods) == list(cluster.chosen.slots)
    chosen = cluster.chosen
    if chosen.paused and not chosen.on_delete:
        return
    assert not cluster.unavailable()
    if not chosen.on_delete:
        updated = sum(one.is_at(NEW) for one in cluster.replicas.wanted)
        assert updated >= chosen.replicas - chosen.partition
