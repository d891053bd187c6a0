import pytest

from app.kube.expectations import (
    SHORTEST_WAIT,
    ResourceVersionExpectations,
    ScaleAction,
    ScaleExpectations,
    is_at_least,
)
from app.kube.objects import ObjectMeta
from tests.kit.virtualtime import VirtualClock
from tests.kube.fakes import virtual

CREATE, DELETE = ScaleAction.CREATE, ScaleAction.DELETE


def meta(version: str, uid: str = "u") -> ObjectMeta:
    return ObjectMeta(uid=uid, resource_version=version)


@virtual
@pytest.mark.behaviour("PM-95")
async def test_scaling_is_expected_by_name_until_all_are_observed():
    scale: ScaleExpectations[str] = ScaleExpectations(VirtualClock())
    assert scale.unsatisfied("w") is None
    scale.expect("w", CREATE, "b")
    scale.expect("w", CREATE, "a")
    scale.expect("w", DELETE, "c")
    scale.observe("w", CREATE, "unknown")
    scale.observe("other", CREATE, "a")
    scale.observe("w", DELETE, "a")
    waiting = scale.unsatisfied("w")
    assert waiting.outstanding == "create a, b; delete c"
    assert scale.unsatisfied("other") is None
    for action, name in ((CREATE, "a"), (CREATE, "b")):
        scale.observe("w", action, name)
        assert scale.unsatisfied("w") is not None
    scale.observe("w", DELETE, "c")
    assert scale.unsatisfied("w") is None


@virtual
@pytest.mark.behaviour("PM-98")
async def test_the_timeout_starts_with_the_first_check():
    clock = VirtualClock()
    scale: ScaleExpectations[str] = ScaleExpectations(clock)
    scale.expect("w", CREATE, "a")
    await clock.sleep(100)
    first = scale.unsatisfied("w")
    assert (first.waited, first.remaining(300)) == (0, 300)
    await clock.sleep(200)
    scale.expect("w", CREATE, "b")
    second = scale.unsatisfied("w")
    assert (second.waited, second.remaining(300)) == (200, 100)
    await clock.sleep(200)
    third = scale.unsatisfied("w")
    assert third.remaining(300) == 0
    assert third.remaining(third.waited + 1e-9) == SHORTEST_WAIT
    for name in ("a", "b"):
        scale.observe("w", CREATE, name)
    scale.expect("w", CREATE, "c")  # without a check in between
    assert scale.unsatisfied("w").waited == 0
    await clock.sleep(100)
    scale.forget("w")
    assert scale.unsatisfied("w") is None
    scale.expect("w", CREATE, "d")
    assert scale.unsatisfied("w").waited == 0


@virtual
@pytest.mark.behaviour("PM-97")
async def test_a_cache_older_than_our_write_is_not_trusted():
    versions = ResourceVersionExpectations(VirtualClock())
    assert versions.unsatisfied(meta("1")) is None
    versions.expect(meta("100"))
    versions.expect(meta("99"))  # an older write cannot lower it
    waiting = versions.unsatisfied(meta("99"))
    assert waiting.outstanding == "resourceVersion 100, have 99"
    assert versions.unsatisfied(meta("5", uid="other")) is None
    versions.observe(meta("99"))
    assert versions.unsatisfied(meta("9")) is not None
    assert versions.unsatisfied(meta("101")) is None
    assert versions.unsatisfied(meta("1")) is None  # seen once
    versions.expect(meta("200"))
    versions.forget("u")
    assert versions.unsatisfied(meta("1")) is None


@virtual
@pytest.mark.behaviour("PM-97")
async def test_each_write_is_waited_for_from_its_own_first_check():
    clock = VirtualClock()
    versions = ResourceVersionExpectations(clock)
    for written in ("100", "200"):
        versions.expect(meta(written))
        assert versions.unsatisfied(meta("1")).waited == 0
        await clock.sleep(400)
        versions.observe(meta(written))


@pytest.mark.behaviour("PM-97")
@pytest.mark.parametrize(
    ("cached", "expected", "answer"),
    [
        ("10", "9", True),
        ("9", "10", False),
        ("9", "9", True),
        ("18446744073709551615", "9999999999999999999", True),
        ("x", "9", False),
        ("", "9", False),
        ("-1", "0", False),
        ("9", "x", True),
        ("9", "", True),
        ("x", "y", True),
        ("²", "1", False),
    ],
)
def test_versions_are_compared_as_numbers(cached, expected, answer):
    assert is_at_least(cached, expected) is answer
