"""Corners of injection that random Pods and sets found."""

from __future__ import annotations

import pytest

from app.features.sidecarset.kind import sidecarset_hashes
from tests.features.admitting import HASH, HASH_WITHOUT_IMAGE, World, main, pod, sidecarset

SHIPPER = {"name": "shipper"}


@pytest.mark.behaviour("SS-52")
def test_a_secret_is_added_even_if_the_pod_has_a_duplicate() -> None:
    answer = (
        World()
        .apply(sidecarset("s", SHIPPER, imagePullSecrets=[{"name": "r2"}]))
        .create(pod(imagePullSecrets=[{"name": "r1"}, {"name": "r1"}]))
    )
    assert answer.pod["spec"]["imagePullSecrets"] == [{"name": "r1"}, {"name": "r2"}]


@pytest.mark.behaviour("SS-12", "SS-57")
def test_a_set_without_hashes_and_containers_gets_the_hash_of_no_containers() -> None:
    one = sidecarset("s", initContainers=[{"name": "fetch"}])
    del one["spec"]["containers"], one["metadata"]["annotations"]
    answer = World().apply(one).create(pod())
    # Plain init containers do not count, so this is the hash of {"containers":null}, with and without images.
    expected = "x5vwx9w6vv4dv72c9w4c2f6v74fbwx545b45bbfz6z2dvf8w887xw86fvcb4cf48"
    assert sidecarset_hashes(None, one["spec"]["initContainers"]).hash == expected
    assert [answer.record(key)["s"]["hash"] for key in (HASH, HASH_WITHOUT_IMAGE)] == [expected, expected]


@pytest.mark.behaviour("SS-67")
@pytest.mark.parametrize("expression", ["CPU*50%", "memory", "cpu*"])
def test_an_unusable_expression_refuses_the_pod(expression: str) -> None:
    policy = {"targetContainersMode": "sum", "resourcesExpr": {"requests": {"cpu": expression}}}
    world = World().apply(sidecarset("s", {**SHIPPER, "resourcesPolicy": policy}))
    answer = world.create(pod())
    assert answer.denied is not None
    assert "SidecarSet s: container shipper: resourcesPolicy.resourcesExpr.requests.cpu" in answer.denied.message
    assert [name for name, _ in world.reported] == ["s"]


@pytest.mark.behaviour("PW-14", "PW-15")
@pytest.mark.parametrize(
    ("annotation", "priority"), [("{", "1"), ('{"nobody": 1}', "1"), (None, "high")], ids=["JSON", "unknown", "env"]
)
def test_a_launch_priority_refusal_names_the_pod(annotation: str | None, priority: str) -> None:
    env = [{"name": "KRUISE_CONTAINER_PRIORITY", "value": priority}]
    annotations = {} if annotation is None else {"apps.kruise.io/container-launch-priority": annotation}
    answer = World().create(pod(annotations=annotations, containers=[main(), main("second", env=env)]))
    assert answer.denied is not None
    assert answer.denied.message.startswith("Pod shop/web-0: ")
