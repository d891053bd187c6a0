"""No shape of a Pod makes admission do more than its size explains: steps are counted, time is not measured."""

from collections.abc import Mapping

import pytest

from app.api.ephemeraljob import EphemeralJob
from app.kube import virtualtime
from app.kube.client import Client
from app.kube.objects import ObjectMeta, Pod
from app.kube.selectors import compile_selector
from app.kube.store import Change
from app.kube.virtualtime import VirtualClock
from app.slices import PODS_BY_NAMESPACE
from app.workloads.ephemeraljob.controller import EPHEMERAL_JOBS
from app.workloads.ephemeraljob.slice import SLICE
from tests.fuzz import cost, objects
from tests.fuzz.controllers import Nobody
from tests.slicing import context, part_of, stores_of

SMALL, LARGE = 12_000, 48_000
#: Steps for a Pod of no size, and per byte. The first Pod of 0.4 MB that hung a process took 4,000 per byte.
STEPS, STEPS_PER_BYTE = 6_000, 12.0
SHAPES = [made.what for made in objects.large_pods(1_000)]


@pytest.fixture(scope="module")
def steps() -> Mapping[str, tuple[int, int]]:
    """For each shape what a small and a large Pod of it cost."""

    async def counted() -> dict[str, tuple[int, int]]:
        handler = await cost.pod_handler()
        for _, body in cost.bodies(1_000):
            await cost.reply(handler, body)  # what is remembered from the first time on
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
    # Four times the size; a step that is quadratic makes it sixteen times the cost.
    assert large < 5 * small
    assert large < STEPS + STEPS_PER_BYTE * LARGE


def test_the_cost_of_a_selector_is_linear_in_its_requirements() -> None:
    def steps(requirements: int) -> int:
        both = [{"key": "app", "operator": "In", "values": ["web"]}, {"key": "app", "operator": "Exists"}]
        with cost.counted() as count:
            compile_selector({"matchExpressions": both * (requirements // 2)})
        return count[0]

    assert steps(2_000) < 5 * steps(500)


def test_a_change_of_a_pod_costs_little_whatever_jobs_there_are() -> None:
    """They are anybody's, and every change of a Pod of their namespace asks them."""

    async def counted(jobs: int) -> int:
        part = part_of(SLICE)
        stores = stores_of(part)
        made = part.make(context(part, Client(Nobody(), VirtualClock()), stores))
        for number in range(jobs):
            body = {
                "metadata": {"name": f"j{number}", "namespace": "tenant", "uid": f"u{number}", "generation": 1},
                "spec": {"selector": {"matchLabels": {"app": f"x{number}"}}, "template": {"ephemeralContainers": []}},
            }
            stores(EPHEMERAL_JOBS).put(EphemeralJob.model_validate(body))
        watch = next(one for one in made.watches if one.store is stores(PODS_BY_NAMESPACE))
        pods = [Pod(ObjectMeta(name="p", namespace="tenant", uid="p", labels={"app": app})) for app in ("a", "b")]
        list(watch.keys(Change(*pods)))
        with cost.counted() as count:
            list(watch.keys(Change(*pods)))
        return count[0]

    assert virtualtime.run(counted(1_000)) < 40 * 1_000
