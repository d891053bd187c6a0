"""Phases that follow the storm of a run with CloneSets: a lasting fault, no fault, or incidents."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from random import Random
from typing import TYPE_CHECKING, Any

from tests.simulation import plan
from tests.simulation.faults import CALM, DRIZZLE, Weather
from tests.simulation.workloads.cloneset import incidents, unseen
from tests.simulation.workloads.cloneset.existing import Existing, bare_pods
from tests.simulation.workloads.cloneset.manifests import CLONE_SETS
from tests.simulation.workloads.cloneset.script import HASTE_SECONDS, blind_script, calm_script, drizzle_script
from tests.simulation.workloads.sidecars import SIDECAR_SETS

if TYPE_CHECKING:
    from tests.simulation.world import World

Json = dict[str, Any]

#: The renew deadline of a leader.
RENEWAL_SECONDS = 10.0


async def trouble(world: World) -> None:
    """Everything settles despite a lasting fault: occasional refusals, or a frozen watch."""
    clones = sorted(name for name, found in world.rest.stored(CLONE_SETS).items() if found["spec"]["replicas"])
    rng = Random(f"trouble {world.seed}")
    if not clones:
        return
    blind = rng.random() < 0.5
    if blind:
        world.weather = Weather(lost_answer=rng.choice((0.0, 0.3, 0.3))).without(*world.without)
        acts = [*blind_script(rng, clones)]
    else:
        world.weather = Weather(**{rng.choice(DRIZZLE): 0.25}).without(*world.without)
        acts = [drizzle_script(rng, clones)]
    for action in acts:
        await world.clock.sleep(action.at)
        await asyncio.create_task(world.users.do(action))
    if blind:  # with more lost responses, every leader would lose its Lease
        await world.clock.sleep(max(0.0, 0.0, *world.users.frozen.values()) - world.clock.monotonic())
        world.weather = CALM
    await world.until_done(world.rest.to_settle)
    world.weather = CALM
    await world.clock.sleep(RENEWAL_SECONDS)  # a leader that could not renew its Lease stops only now
    await world.until_done(world.rest.to_settle)


async def calm(world: World) -> None:
    """Without faults, every action is handled at once and without a superfluous write."""
    await world.sleep_until_unhindered()
    rng = Random(f"calm {world.seed}")
    existing = {resource.plural: sorted(world.rest.stored(resource)) for resource in (SIDECAR_SETS, CLONE_SETS)}
    existing["pods"] = bare_pods(world.rest)
    # Without Pods, the newest revision is the current one (CS-73).
    staffed = sorted(name for name, found in world.rest.stored(CLONE_SETS).items() if found["spec"]["replicas"])
    names = (existing["sidecarsets"], existing["pods"], existing["clonesets"], staffed)
    acts = [*calm_script(rng, *names, number=world.plan.calm_acts)]
    for action, after in zip(acts, [*acts[1:], None], strict=True):
        await world.clock.sleep(action.at)
        # If Pods are marked just before a rollout, a reconcile may see only the rollout and mark them again.
        world.checks.calm = "marked" not in action.arguments
        await asyncio.create_task(world.users.do(action))
        if after is not None and after.at < HASTE_SECONDS:
            continue
        await world.until_done(world.rest.to_settle, world.users.seconds_for(action.what), every=0.5)
        await world.clock.sleep(2.0)
        world.checks.calm = False


async def one_after_the_other(world: World) -> None:
    """Run one incident at a time. Everything must settle soon after each."""
    await world.sleep_until_unhindered()
    rng, other = Random(f"mishaps {world.seed}"), Random(f"unseen {world.seed}")
    for number in range(world.plan.incidents):
        existing = Existing.of(world.rest)
        one = incidents.incident(rng, existing, number)
        await world.run_incident(unseen.incident(other, existing, number) or one)
    clones = [
        incidents.Staffed(name, found["spec"]["replicas"], revives=_revives(found))
        for name, found in sorted(world.rest.stored(CLONE_SETS).items())
        if found["spec"]["replicas"]
    ]
    if aimed := incidents.aimed(Random(f"aimed {world.seed}"), clones):
        await world.run_incident(aimed)
    await world.wait_for_laggards()


def _revives(obj: Json) -> bool:
    """Return whether Pods that wait for their preDelete hook may return. [CS-97]"""
    hooks = obj["spec"].get("lifecycle") or {}
    return bool(hooks) and not any((hook or {}).get("markPodNotReady") for hook in hooks.values())


PHASES: Mapping[str, Callable[[World], Awaitable[None]]] = {
    plan.TROUBLE: trouble,
    plan.CALM: calm,
    plan.INCIDENTS: one_after_the_other,
}
