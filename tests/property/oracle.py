"""The reference for Pod admission: readiness gate, SidecarSet injection, launch priority. Slow and naive.

It is written from the rules and shares no code with the product. Pods and sets are plain JSON, copied freely. The order
of the steps of an injection (SS-41) is here; each step has its own module.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field

from tests.property.branches import Branches
from tests.property.case import Case, Json
from tests.property.oracle_annotations import Annotations
from tests.property.oracle_basics import (
    HASH,
    HASH_WITHOUT_IMAGE,
    PRIORITY,
    Applied,
    Refused,
    State,
    is_hot,
    read_hashes,
)
from tests.property.oracle_choice import Choice
from tests.property.oracle_lists import Lists
from tests.property.oracle_priority import LaunchPriority
from tests.property.oracle_sidecar import Builder


@dataclass
class Expected:
    """The Pod as admitted, or the rule that rejects it."""

    pod: Json | None
    refused: str = ""
    branches: Branches = field(default_factory=Branches)
    #: Why a second admission of the result may change it (D-21).
    unrepeatable: set[str] = field(default_factory=set)

    @property
    def injected(self) -> bool:
        return self.branches["injected"] > 0


def expected(case: Case) -> Expected:
    """Return the answer to this case."""
    pod = copy.deepcopy(case.pod)
    answer = Expected(pod)
    try:
        _Admission(State(case, pod, answer.branches), answer).run()
    except Refused as refusal:
        answer.branches.hit(refusal.branch)
        answer.branches.hit("refused")
        answer.pod, answer.refused = None, refusal.branch
    return answer


class _Admission:
    def __init__(self, state: State, answer: Expected) -> None:
        self.state, self.answer, self.annotations = state, answer, Annotations(state)
        #: Whether a set's patch requests the launch order.
        self.priority_from_set = False

    def run(self) -> None:
        if "kubernetes.io/config.mirror" in self.state.annotations:
            if self.state.case.by_node:
                self.state.branches.hit("PW-10 mirror pod")
                return
            self.state.branches.hit("PW-10 claims to be a mirror pod")
        self.readiness_gate()
        self.sidecars()
        if LaunchPriority(self.state, priority_from_set=self.priority_from_set).apply():
            self.answer.unrepeatable.add("launch priority")

    def readiness_gate(self) -> None:
        owners = self.state.pod["metadata"].get("ownerReferences") or []
        kruise = any(o.get("controller") and o["apiVersion"].split("/")[0] == "apps.kruise.io" for o in owners)
        gates = self.state.spec.get("readinessGates") or []
        if not (kruise or self.state.case.readiness_gate_for_all):
            return
        if not any(g["conditionType"] == "KruisePodReady" for g in gates):
            self.state.branches.hit("PW-6 readiness gate")
            self.state.spec["readinessGates"] = [*gates, {"conditionType": "KruisePodReady"}]

    def sidecars(self) -> None:
        phase = (self.state.pod.get("status") or {}).get("phase")
        if phase in ("Succeeded", "Failed") or self.state.pod["metadata"].get("deletionTimestamp"):
            self.state.branches.hit("SS-40 claims not to be active")
        sets = Choice(self.state).applied()
        if not sets:
            self.state.branches.hit("no set applies")
        had_priority = PRIORITY in self.state.annotations
        for one in sets:
            for entry in one.spec.get("patchPodMetadata") or []:
                for key, text in (entry.get("annotations") or {}).items():
                    self.annotations.patch_annotation(entry.get("patchPolicy") or "Retain", key, text)
        self.priority_from_set = PRIORITY in self.state.annotations and not had_priority
        if not any(containers or inits for containers, inits in (s.lists() for s in sets)):
            if sets:
                self.state.branches.hit("only metadata patched")
            self.annotations.invalid_but_unread()
            return
        self.inject(sets)

    def inject(self, sets: list[Applied]) -> None:
        for key, branch in (
            (HASH, "SS-59 invalid refused"),
            (HASH_WITHOUT_IMAGE, "SS-59 invalid without-image refused"),
        ):
            try:
                read_hashes(self.state.annotations.get(key), Branches())
            except ValueError:
                raise Refused(branch) from None
        #: The names of all sidecars, base and twins. [SS-61]
        sidecar_names = {c["name"] for s in sets for part in s.lists() for c in part}
        sidecar_names |= {
            f"{c['name']}-{n}" for s in sets for part in s.lists() for c in part if is_hot(c) for n in (1, 2)
        }
        builder, lists = Builder(self.state, sidecar_names), Lists(self.state)
        containers: list[Json] = []
        inits: list[Json] = []
        volumes: list[Json] = []
        working: Json = {}
        for one in sets:
            of_set, inits_of_set = one.lists()
            for container in inits_of_set:
                inits.append({**builder.built(container, init=True), "!policy": container.get("podInjectPolicy")})
            for container in of_set:
                built = {**builder.built(container, init=False), "!policy": container.get("podInjectPolicy")}
                if is_hot(container):
                    self.state.branches.hit("SS-45 adjacent pair")
                    containers += builder.pair(container, built)
                    working[container["name"]] = f"{container['name']}-1"
                else:
                    containers.append(built)
            volumes += lists.volumes_of(one, volumes)
        self.refuse_duplicates(containers, inits)
        self.note_unrepeatable(sets, builder)
        lists.merge_containers(containers)
        lists.merge_init_containers(inits)
        if volumes:
            self.state.spec["volumes"] = (self.state.spec.get("volumes") or []) + volumes
        lists.pull_secrets(sets)
        self.annotations.write_annotations(sets, working)
        self.state.branches.hit("injected")

    def refuse_duplicates(self, containers: list[Json], inits: list[Json]) -> None:
        """Check names between sets (SS-117) and against the Pod's other list (SS-21), since the API server would
        reject duplicates."""
        names = [c["name"] for c in containers + inits]
        if len(set(names)) != len(names):
            raise Refused("SS-117 duplicate refused")
        for sidecars, others in ((containers, "initContainers"), (inits, "containers")):
            if {c["name"] for c in sidecars} & {c["name"] for c in self.state.spec.get(others) or []}:
                raise Refused("SS-21 name of the Pod's other list refused")

    def note_unrepeatable(self, sets: list[Applied], builder: Builder) -> None:
        """Record why a second admission may change the result. [D-21]"""
        overwritten = [c for c in builder.app_containers() if c["name"] in builder.sidecar_names]
        for one in sets:
            for container in [c for part in one.lists() for c in part]:
                for entry in container.get("transferEnv") or []:
                    quiet = Builder(State(self.state.case, self.state.pod, Branches()), set())
                    if quiet.source_of(entry) in builder.sidecar_names:
                        self.answer.unrepeatable.add("transferEnv from a sidecar")
                for policy, key in (
                    ("shareVolumePolicy", "volumeMounts"),
                    ("shareVolumeDevicePolicy", "volumeDevices"),
                ):
                    shares = (container.get(policy) or {}).get("type") == "enabled"
                    if shares and any(c.get(key) for c in overwritten):
                        self.answer.unrepeatable.add("shared from a container that is overwritten")
