"""The fuzzer covers every target, is reproducible by number, and finds planted errors."""

import time
from typing import Any

import pytest

from app.kube.admission import Allowed, Decision, Review
from app.manager.features import kinds
from app.manager.standalone import Standalone
from tests.fuzz import objects, targets
from tests.fuzz.cases import LARGE_EVERY, Case, Cases
from tests.fuzz.judge import SECONDS, Judge
from tests.fuzz.service import standalone_service


@pytest.fixture
async def standalone() -> Standalone:
    return await standalone_service(objects.sidecar_set())


async def test_every_webhook_kind_and_decoder_is_fuzzed(standalone: Standalone) -> None:
    assert {asked.path for asked in targets.questions(standalone.registry)} == set(standalone.registry.routes)
    assert {one.kind for one in targets.conversions()} == {kind.kind for kind in kinds()}
    assert "decode_pod" in targets.decoders()


async def test_a_number_identifies_a_case(standalone: Standalone) -> None:
    cases = Cases(standalone.registry, 3)
    numbers = range(1, 200)
    assert [cases.case(number) for number in numbers] == [cases.case(number) for number in numbers]
    assert cases.case(5) != Cases(standalone.registry, 4).case(5)
    assert len(cases.case(LARGE_EVERY).body) > 1_000_000


class _Planted:
    """Fails as the Pod's name requests."""

    def __init__(self) -> None:
        self.kept: list[Any] = []

    def __call__(self, review: Review) -> Decision:
        what = review.object["metadata"]["name"] if review.object else ""
        if what == "fails":
            raise KeyError(what)
        if what == "slow":
            end = time.process_time() + 1.2 * SECONDS
            while time.process_time() < end:
                pass
        if what == "large":
            self.kept.append(bytearray(b"x") * (200 << 20))
        return Allowed()


@pytest.mark.parametrize(
    ("name", "problem"),
    [("fails", "a handler failed"), ("slow", "of processor time"), ("large", "MiB more"), ("well", "")],
)
async def test_known_bugs_are_found(standalone: Standalone, name: str, problem: str) -> None:
    route = standalone.registry.routes["/mutate-pod"]
    for handler in route.handlers.values():
        object.__setattr__(handler, "decide", _Planted())
    pod = objects.pod()
    pod["metadata"]["name"] = name
    pod["metadata"]["annotations"] = {"size": "x" * 300_000}
    body = objects.encode(objects.review(objects.TARGETS[0], pod))
    found = await Judge(standalone).judge(Case(1, name, "/mutate-pod", body))
    assert bool(found) == bool(problem)
    assert problem in "; ".join(found)
