"""CloneSets, with SidecarSets and bare Pods beside them: the storm has most that can go wrong, three phases follow it,
and focused runs look for what hardly any storm would find."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from tests.simulation.mishaps import Focuses
from tests.simulation.script import Action
from tests.simulation.users import Deed
from tests.simulation.workloads.cloneset import deeds, focus, script, story
from tests.simulation.workloads.cloneset.judge import CloneSetJudge
from tests.simulation.workloads.judge import Judge, Judges
from tests.simulation.workloads.sidecars import DEEDS as SIDECAR_DEEDS
from tests.simulation.workloads.sidecars import SidecarSetJudge
from tests.simulation.workloads.subject import Company, Surroundings

if TYPE_CHECKING:
    from tests.simulation.world import World


def _judge() -> Judge:
    return Judges(SidecarSetJudge(injection=True), CloneSetJudge())


class CloneSets:
    #: CloneSets and SidecarSets, and Pods whose containers start in order.
    folders: Sequence[str] = (
        "app.features.podreadiness",
        "app.features.sidecarset",
        "app.features.launchpriority",
        "app.features.cloneset",
    )
    gates: Sequence[str] = ()
    books: str = ""
    goes_on: bool = False
    company: Callable[[Surroundings], Company] | None = None
    deeds: Mapping[str, Deed] = {**SIDECAR_DEEDS, **deeds.DEEDS}
    focuses: Focuses = focus.FOCUSES

    @property
    def judge(self) -> Callable[[], Judge]:
        """The judges of one run."""
        return _judge

    def script(self, seed: int, *, seconds: float, actions: int, size: int) -> tuple[Action, ...]:
        return script.script(seed, seconds=seconds, actions=actions, size=size)

    async def after_storm(self, world: World) -> None:
        for phase in world.plan.phases:
            await story.PHASES[phase](world)


CLONE_SETS = CloneSets()
