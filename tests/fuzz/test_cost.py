"""The cost of admitting a Pod of any shape is proportional to its size. Tests count steps and do not measure time."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from app.features.ephemeraljob import feature as ephemeraljob
from app.features.ephemeraljob.reconcile import EPHEMERAL_JOBS
from app.features.ephemeraljob.types import EphemeralJob
from app.features.podprobe import feature as podprobe
from app.features.podprobe.feature import MARKERS
from app.features.podprobe.types import PodProbeMarker
from app.features.podunavailablebudget import feature as podunavailablebudget
from app.features.podunavailablebudget.targets import BUDGETS
from app.features.podunavailablebudget.types import PodUnavailableBudget
from app.framework.feature import Feature
from app.framework.watched import PODS_BY_NAMESPACE, Watched
from app.kube.client import Client
from app.kube.objects import ObjectMeta, Pod
from app.kube.selectors import compile_selector
from app.kube.store import Change
from tests.fuzz import cost, objects
from tests.fuzz.controllers import OneObject
from tests.kit import virtualtime
from tests.kit.features import context, part_of, stores_of
from tests.kit.virtualtime import VirtualClock

SMALL, LARGE = 12_000, 48_000
#: Allowed steps for an empty Pod, and per byte. A Pod of 0.4 MB that once blocked a process took 4,000 per byte.
STEPS, STEPS_PER_BYTE = 6_000, 12.0
SHAPES = [made.what for made in objects.large_pods(1_000)]


@pytest.fixture(scope="module")
def steps() -> Mapping[str, tuple[int, int]]:
    """Return the cost of a small and a large Pod for each shape."""

    async def counted() -> dict[str, tuple[int, int]]:
        handler = await cost.pod_handler()
        for _, body in cost.bodies(1_000):
            await cost.reply(handler, body)  # excludes first-time costs
        found: dict[str, list[int]] = {}
        for size in (SMALL, LARGE):
            for what, body in cost.bodies(size):
                with cost.counted() as count:
                    await cost.reply(handler, body)
                found.setdefault(what, []).append(count[0])
        return {what: (small, large) for what, (small, large) in found.items()}

    return virtualtime.run(counted())


@pytest.mark.behaviour("PW-35")
@pytest.mark.parametrize("shape", SHAPES)
def test_the_cost_of_a_pod_is_linear_in_its_size(shape: str, steps: Mapping[str, tuple[int, int]]) -> None:
    small, large = steps[shape]
    # Four times the size; a quadratic step would cost sixteen times as much.
    assert large < 5 * small
    assert large < STEPS + STEPS_PER_BYTE * LARGE


def test_the_cost_of_a_selector_is_linear_in_its_requirements() -> None:
    def steps(requirements: int) -> int:
        both = [{"key": "app", "operator": "In", "values": ["web"]}, {"key": "app", "operator": "Exists"}]
        with cost.counted() as count:
            compile_selector({"matchExpressions": both * (requirements // 2)})
        return count[0]

    assert steps(240) < 5 * steps(60)


def _job(number: int) -> EphemeralJob:
    spec = {"selector": {"matchLabels": {"app": f"x{number}"}}, "template": {"ephemeralContainers": []}}
    return EphemeralJob.model_validate({"metadata": _metadata(number), "spec": spec})


def _marker(number: int) -> PodProbeMarker:
    spec = {"selector": {"matchLabels": {"app": f"x{number}"}}, "probes": []}
    return PodProbeMarker.model_validate({"metadata": _metadata(number), "spec": spec})


def _budget(number: int) -> PodUnavailableBudget:
    spec = {"selector": {"matchLabels": {"app": f"x{number}"}}, "maxUnavailable": 1}
    return PodUnavailableBudget.model_validate({"metadata": _metadata(number), "spec": spec})


def _budget_of_target(number: int) -> PodUnavailableBudget:
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": f"x{number}"}
    return PodUnavailableBudget.model_validate(
        {"metadata": _metadata(number), "spec": {"targetRef": target, "maxUnavailable": 1}}
    )


def _metadata(number: int) -> Mapping[str, object]:
    return {"name": f"o{number}", "namespace": "tenant", "uid": f"u{number}", "generation": 1}


@pytest.mark.parametrize(
    ("declared", "watched", "made", "each"),
    [
        (ephemeraljob.FEATURE, EPHEMERAL_JOBS, _job, 1.0),
        (podprobe.FEATURE, MARKERS, _marker, 1.0),
        (podunavailablebudget.FEATURE, BUDGETS, _budget, 1.0),
        (podunavailablebudget.FEATURE, BUDGETS, _budget_of_target, 1.0),
    ],
    ids=["jobs", "markers", "budgets", "budgets of workloads"],
)
def test_the_cost_of_a_pod_change_per_object_is_limited(
    declared: Feature, watched: Watched[Any], made: Callable[[int], Any], each: float
) -> None:
    """Users own these objects, and every Pod change in their namespace reads them. ``each`` is the allowed number of
    steps per object."""

    async def counted(objects: int) -> int:
        part = part_of(declared)
        stores = stores_of(part)
        controllers = [part.make(context(part, Client(OneObject(), VirtualClock()), stores))]
        for number in range(objects):
            stores(watched).put(made(number))
        ways = [one for each in controllers for one in each.watches if one.store is stores(PODS_BY_NAMESPACE)]
        assert ways
        pods = [Pod(ObjectMeta(name="p", namespace="tenant", uid="p", labels={"app": app})) for app in ("a", "b")]
        for way in ways:
            list(way.keys(Change(*pods)))
        with cost.counted() as count:
            for way in ways:
                list(way.keys(Change(*pods)))
        return count[0]

    few, many = virtualtime.run(counted(10)), virtualtime.run(counted(1_000))
    assert many - few < each * 990
