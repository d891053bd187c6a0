"""The cost of admitting a Pod of any shape is proportional to its size. Tests count steps and do not measure time."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from app.api.model import KubeObject
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
from tests.fuzz.objects import Json
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


def _selector(number: int) -> Json:
    return {"selector": {"matchLabels": {"app": f"x{number}"}}}


def _target(number: int) -> Json:
    return {"targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": f"x{number}"}}


@pytest.mark.parametrize(
    ("declared", "watched", "kind", "selection", "spec"),
    [
        pytest.param(
            ephemeraljob.FEATURE,
            EPHEMERAL_JOBS,
            EphemeralJob,
            _selector,
            {"template": {"ephemeralContainers": []}},
            id="jobs",
        ),
        pytest.param(podprobe.FEATURE, MARKERS, PodProbeMarker, _selector, {"probes": []}, id="markers"),
        *(
            pytest.param(podunavailablebudget.FEATURE, BUDGETS, PodUnavailableBudget, one, {"maxUnavailable": 1}, id=id)
            for one, id in ((_selector, "budgets"), (_target, "budgets of workloads"))
        ),
    ],
)
def test_the_cost_of_a_pod_change_per_object_is_limited(
    declared: Feature, watched: Watched[Any], kind: type[KubeObject], selection: Callable[[int], Json], spec: Json
) -> None:
    """Users own these objects, and every Pod change in their namespace reads them: at most a step per object."""

    def made(number: int) -> Any:
        metadata = {"name": f"o{number}", "namespace": "tenant", "uid": f"u{number}", "generation": 1}
        return kind.model_validate({"metadata": metadata, "spec": {**selection(number), **spec}})

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
    assert many - few < 990
