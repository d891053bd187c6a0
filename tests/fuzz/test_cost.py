"""No shape of a Pod makes admission do more than its size explains: steps are counted, time is not measured."""

from collections.abc import Mapping

import pytest

from app.kube import virtualtime
from app.kube.selectors import compile_selector
from tests.fuzz import cost, objects

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
