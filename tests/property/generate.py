"""Generates a case from a number: a Pod, one to four SidecarSets, namespaces, revisions.

Themes raise the probability of related features, so that cases reach every branch of the rules often enough. Otherwise
all features mix. The same number gives the same case in every process.
"""

from __future__ import annotations

from tests.property.breakages import BREAKAGES, EXPRESSION_BREAKAGES
from tests.property.case import Case
from tests.property.generate_pod import PodMaker
from tests.property.generate_sets import SetMaker
from tests.property.world import NAMESPACES, World


def generate(seed: int) -> Case:
    world = World(seed)
    maker = SetMaker(world)
    raw = maker.sets()
    # About every third case is invalid on purpose; expressions have many forms, so their errors are more likely.
    if world.chance(40):
        breakage = world.pick(*BREAKAGES, *EXPRESSION_BREAKAGES)
        maker.certain(raw[0])
        BREAKAGES[breakage](maker, raw)
    sets = maker.stored(raw)
    pod = PodMaker(world).pod(sets)
    namespaces = [
        {"metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name, **labels}}}
        for name, labels in NAMESPACES.items()
        if not (name == world.namespace and world.chance(1))
    ]
    world.random.shuffle(sets)
    return Case(
        seed,
        pod,
        world.namespace,
        namespaces,
        sets,
        world.revisions,
        raw_sets=raw,
        readiness_gate_for_all=world.chance(20),
        sort_by_name=world.chance(15, "positions", 60),
        draw=(world.random.randrange(100) + 0.5) / 100,
        dry_run=world.chance(10),
        by_node=seed % 2 == 0,
    )
