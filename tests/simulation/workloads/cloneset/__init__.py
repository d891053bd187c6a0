"""CloneSets, SidecarSets and bare Pods: a storm of most faults and actions, three possible phases after it, and
focused runs for what a storm rarely finds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tests.simulation.script import Action
from tests.simulation.users import UserAction
from tests.simulation.workloads.cloneset import actions, focus, phases, script
from tests.simulation.workloads.cloneset.judge import CloneSetJudge
from tests.simulation.workloads.judge import Judges
from tests.simulation.workloads.sidecars import USER_ACTIONS as SIDECAR_ACTIONS
from tests.simulation.workloads.sidecars import SidecarSetJudge
from tests.simulation.workloads.subject import Subject

if TYPE_CHECKING:
    from tests.simulation.world import World


class CloneSets(Subject):
    @property
    def user_actions(self) -> Mapping[str, UserAction]:
        return {**SIDECAR_ACTIONS, **actions.USER_ACTIONS}

    def script(self, seed: int, *, seconds: float, actions: int, size: int) -> tuple[Action, ...]:
        return script.script(seed, seconds=seconds, actions=actions, size=size)

    async def after_storm(self, world: World) -> None:
        for phase in world.plan.phases:
            await phases.PHASES[phase](world)


CLONE_SETS = CloneSets(
    folders=(
        "app.features.podreadiness",
        "app.features.sidecarset",
        "app.features.launchpriority",
        "app.features.cloneset",
    ),
    judge=lambda: Judges(SidecarSetJudge(injection=True), CloneSetJudge()),
    focuses=focus.FOCUSES,
)
