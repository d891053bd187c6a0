"""ResourceDistributions against faults by seed; and mutants, each of which some seed must find.

The controller runs on the sandbox's API server on virtual time. While things go wrong, no foreign object is written;
when nothing does any more, every target has its copy, and nobody else has one.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Any, Final

import pytest

from app.features.resourcedistribution import reconcile
from app.features.resourcedistribution.plan import TargetRule, Template
from app.features.resourcedistribution.reconcile import ResourceDistributionReconciler
from app.kube.errors import AlreadyExists, Conflict, NotFound
from app.kube.resources import CONFIGMAPS, NAMESPACES
from app.kube.wire import Request
from tests.features.resourcedistribution.world import DISTRIBUTIONS, World, world
from tests.kit.virtualtime import run

Json = dict[str, Any]
STEPS: Final = 30
PLACES: Final = ("n1", "n2", "n3", "n4", "n5")
#: More with PYKRUISE_DISTRIBUTION_SEEDS.
SEEDS = int(os.environ.get("PYKRUISE_DISTRIBUTION_SEEDS", "8"))


class Simulation:
    """The run of one seed."""

    def __init__(self, there: World, seed: int) -> None:
        self.there = there
        self.rng = Random(seed)
        self.troubled = True
        self.complaints: list[str] = []

    def refuse(self, request: Request) -> bool:
        return self.troubled and self.rng.random() < 0.15

    def targets(self) -> Json:
        names = self.rng.sample(PLACES, 3)
        found: Json = {
            "includedNamespaces": {"list": [{"name": name} for name in names[:2]]},
            "excludedNamespaces": {"list": [{"name": names[2]}]},
            "namespaceSelector": {"matchLabels": {"team": self.rng.choice("xy")}},
            "allNamespaces": self.rng.random() < 0.2,
        }
        return found

    def resource(self) -> Json:
        labels = {"v": str(self.rng.randint(1, 3))} if self.rng.random() < 0.5 else {}
        metadata = {"name": "settings", "labels": labels}
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"a": str(self.rng.random())}}

    async def user(self) -> None:
        """Carry out one action of a user."""
        client, place = self.there.client, self.rng.choice(PLACES)
        what = self.rng.choice(("targets", "resource", "label", "drift", "delete", "foreign", "unforeign"))
        if what == "targets":
            await self.there.respecify({"targets": self.targets()})
        elif what == "resource":
            found = await client.get(DISTRIBUTIONS, "rd")
            await client.replace(DISTRIBUTIONS, "rd", {**found, "spec": {**found["spec"], "resource": self.resource()}})
        elif what == "label":
            team = self.rng.choice(("x", "y", None))
            await client.patch(NAMESPACES, place, {"metadata": {"labels": {"team": team}}})
        elif what == "drift":
            if not await self.is_foreign(place):
                await client.patch(CONFIGMAPS, "settings", {"data": {"a": "drift", "b": "c"}}, place)
        elif what == "delete":
            if not await self.is_foreign(place):
                await client.delete(CONFIGMAPS, "settings", place)
        elif what == "foreign":
            await client.create(CONFIGMAPS, {"metadata": {"name": "settings"}, "data": {"a": "theirs"}}, place)
        elif await self.is_foreign(place):
            await client.delete(CONFIGMAPS, "settings", place)

    async def is_foreign(self, place: str) -> bool:
        found = await self.there.copy(place)
        return found is not None and not found["metadata"].get("ownerReferences")

    async def run(self) -> None:
        there = self.there
        for place in PLACES:
            await there.namespace_of(place, team=self.rng.choice("xyz"))
        await there.distribute(self.resource(), **self.targets())
        there.manager.refuse = self.refuse
        for _ in range(STEPS):
            with suppress(NotFound, Conflict, AlreadyExists):
                await self.user()
            await there.settled(self.rng.choice((0.0, 0.05, 0.5, 3.0)))
            await self.nothing_foreign_is_written()
        self.troubled = False
        await there.settled(1100)
        await self.at_rest()

    async def nothing_foreign_is_written(self) -> None:
        for place in PLACES:
            found = await self.there.copy(place)
            if found is None or found["metadata"].get("ownerReferences"):
                continue
            if found["data"] != {"a": "theirs"}:
                self.complaints.append(f"the foreign object in {place} says {found['data']}")

    async def at_rest(self) -> None:
        """Exactly the targets have a copy."""
        there = self.there
        stored = await there.client.get(DISTRIBUTIONS, "rd")
        template = stored["spec"]["resource"]
        wanted = self.wanted(stored["spec"]["targets"], (await there.client.list(NAMESPACES)).items)
        failed = 0
        for one in (await there.client.list(NAMESPACES)).items:
            place = one["metadata"]["name"]
            found = await there.copy(place)
            if found is not None and not found["metadata"].get("ownerReferences"):
                failed += place in wanted
                continue
            if (found is not None) is not (place in wanted):
                self.complaints.append(f"{place} has {'a' if found else 'no'} copy")
            elif found is not None:
                labels = found["metadata"].get("labels", {})
                if (found["data"], labels) != (template["data"], template["metadata"].get("labels", {})):
                    self.complaints.append(f"the copy in {place} says {found['data']}, {labels}")
        status = stored["status"]
        if (status.get("desired", 0), status.get("failed", 0)) != (len(wanted), failed):
            self.complaints.append(f"the status says {status}, wanted {len(wanted)}, failed {failed}")
        before = len(there.writes)
        await there.settled(1000)
        if there.writes[before:]:
            self.complaints.append(f"writes at rest: {there.writes[before:][:3]}")

    @staticmethod
    def wanted(targets: Json, namespaces: list[Json]) -> set[str]:
        labels = {one["metadata"]["name"]: one["metadata"].get("labels", {}) for one in namespaces}
        team = targets["namespaceSelector"]["matchLabels"]["team"]
        found = {name for name, given in labels.items() if given.get("team") == team}
        found |= {one["name"] for one in targets["includedNamespaces"]["list"]}
        if targets.get("allNamespaces"):
            found |= labels.keys()
        excluded = {one["name"] for one in targets["excludedNamespaces"]["list"]}
        return found - excluded - {"kube-system", "kube-public"}


def complaints(seed: int) -> list[str]:
    """Return the findings of a seed."""
    found: list[str] = []

    async def main() -> None:
        async with world() as there:
            simulation = Simulation(there, seed)
            await simulation.run()
            found.extend(simulation.complaints)

    run(main())
    return found


@pytest.mark.behaviour("RD-33", "RD-38", "RD-39", "RD-41", "RD-55", "RD-71", "RD-72")
@pytest.mark.parametrize("seed", range(1, 1 + SEEDS))
def test_everything_settles_as_specified(seed: int) -> None:
    assert complaints(seed) == []


# ---- mutants


async def cleans_nothing_up(*_: object) -> list[Any]:
    return []


def of_the_same_name(copy: Json, _uid: str) -> bool:
    """Whatever has the name is ours."""
    return bool(copy)


def by_the_first_data(template: Template, copy: Json) -> Json:
    """Only data is compared; labels of the template do not follow."""
    return {} if copy.get("data") == template.manifest["data"] else {"data": template.manifest["data"]}


def in_spite_of_exclusion(self: TargetRule, name: str, labels: Json) -> bool:
    """Excluded namespaces are targets."""
    return self.all_namespaces or name in self.included or self.selects(labels)


MUTANTS: dict[str, tuple[Any, str, Callable[..., Any]]] = {
    "copies are left behind": (ResourceDistributionReconciler, "_clean_up", cleans_nothing_up),
    "foreign objects are taken": (reconcile, "is_copy_of", of_the_same_name),
    "labels do not follow": (reconcile, "update_patch", by_the_first_data),
    "exclusion is forgotten": (TargetRule, "matches", in_spite_of_exclusion),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_found_by_some_seed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    place, attribute, mutant = MUTANTS[name]
    monkeypatch.setattr(place, attribute, mutant)
    assert any(complaints(seed) for seed in range(1, 31))
