from __future__ import annotations

import json

import pytest

from app.kube.objects import Pod
from app.pods.disruption_budget import ALLOWED, Disruption, NoBudget
from app.pods.revisions import (
    Create,
    Revision,
    controller_revision,
    recorded_template,
    template_data,
)

TEMPLATE = {
    "metadata": {"labels": {"app": "web"}, "annotations": {"cfg": "1"}, "finalizers": ["f"]},
    "spec": {"containers": [{"name": "main", "image": "nginx:1"}], "readinessGates": [{"conditionType": "theirs"}]},
}
OWNER = {"kind": "CloneSet", "uid": "u"}


@pytest.mark.behaviour("PM-80", "PM-84")
def test_a_template_is_recorded_as_in_go() -> None:
    template = {
        "metadata": {"labels": {"b": "<&>", "a": "é"}},
        "spec": {
            "containers": [{"name": "main", "image": "", "resources": {"limits": {"cpu": "1000m"}}}],
            "hostNetwork": False,
        },
    }
    assert template_data(template).decode() == (
        '{"spec":{"template":{"$patch":"replace","metadata":{"creationTimestamp":null,"labels":{"a":"é",'
        '"b":"\\u003c\\u0026\\u003e"}},"spec":{"containers":[{"name":"main","resources":{"limits":{"cpu":"1"}}}]}}}}'
    )


@pytest.mark.behaviour("PM-80")
def test_unknown_fields_are_recorded() -> None:
    new = {**TEMPLATE["spec"], "fieldOfTomorrow": {"x": 1}}
    data = template_data({"metadata": {}, "spec": new})
    assert json.loads(data)["spec"]["template"]["spec"]["fieldOfTomorrow"] == {"x": 1}
    broken = {"metadata": {}, "spec": {"containers": 7}}
    assert json.loads(template_data(broken))["spec"]["template"]["spec"] == {"containers": 7}


@pytest.mark.parametrize("data", [b"{", b"null", b'{"spec":[]}', b'{"spec":{"template":{"spec":1}}}'])
@pytest.mark.behaviour("PM-10")
def test_a_handmade_revision_records_nothing(data: bytes) -> None:
    assert recorded_template(Revision("r", 1, data)) is None
    assert recorded_template(Revision("r", 1, template_data(TEMPLATE))) is not None


@pytest.mark.behaviour("PM-81")
def test_a_revision_object_has_the_recorded_metadata() -> None:
    create = Create("web-abc", "abc", 3, 0, b"{}")
    made = controller_revision(create, "shop", OWNER, labels={"app": "web"}, annotations={"note": "x"})
    assert (made["metadata"]["name"], made["revision"]) == ("web-abc", 3)
    assert made["metadata"]["labels"] == {"app": "web", "controller.kubernetes.io/hash": "abc"}
    assert made["metadata"]["annotations"] == {"note": "x"}


@pytest.mark.behaviour("PM-171")
async def test_without_budgets_everything_is_allowed() -> None:
    assert await NoBudget().ask(Pod(), Disruption.UPDATE) == ALLOWED
