"""The generator of hostile objects starts from valid ones, and yields the sizes and encodings that it promises."""

import pytest

from tests.fuzz import objects
from tests.fuzz.service import Service, standalone_service


@pytest.mark.parametrize("target", objects.TARGETS, ids=lambda t: f"{t.path[1:]} {t.make()['apiVersion']}")
async def test_a_complete_object_is_admitted(target: objects.Target) -> None:
    service = Service(await standalone_service())
    response = await service.respond(target.path, objects.review(target, target.make()))
    assert response["allowed"], response["status"]


async def test_the_complete_sidecar_set_is_injected_into_the_complete_pod() -> None:
    service = Service(await standalone_service(objects.sidecar_set()))
    response = await service.respond("/mutate-pod", objects.review(objects.TARGETS[0], objects.pod()))
    assert response["allowed"], response["status"]
    assert "patch" in response


def test_every_large_pod_has_about_the_desired_size() -> None:
    sizes = {made.what: len(objects.encode(made.object)) for made in objects.large_pods(50_000)}
    assert {what: size for what, size in sizes.items() if not 25_000 < size < 150_000} == {}


def test_unusual_encodings_are_produced() -> None:
    assert objects.encode({"a": objects.Deep(3)}) == b'{"a":{"x":{"x":{"x":1}}}}'
    assert objects.encode([objects.Deep(2, lists=True), objects.Deep(1)]) == b'[[[1]],{"x":1}]'
