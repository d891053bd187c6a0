from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app.api.webhooks import former_spec
from app.features.cloneset.defaults import with_defaults
from app.features.cloneset.kind import CLONE_SET
from app.features.cloneset.webhooks import SPECS
from tests.admission.writing import review_of


def clone_set(image: str) -> dict[str, Any]:
    container = {"name": "main", "image": image}
    return {
        "apiVersion": "apps.kruise.io/v1beta1",
        "kind": "CloneSet",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"template": {"spec": {"containers": [container]}}},
    }


def test_the_former_spec_is_defaulted_as_openkruise_stores_it() -> None:
    former = former_spec(CLONE_SET, SPECS, review_of(CLONE_SET, clone_set("b:2"), clone_set("a:1")), with_defaults)
    assert (former["replicas"], former["revisionHistoryLimit"]) == (1, 10)
    assert former["template"]["spec"]["containers"] == [{"name": "main", "image": "a:1", "resources": {}}]


def test_a_former_template_is_not_defaulted() -> None:
    given: list[Mapping[str, Any]] = []

    def complete(obj: Mapping[str, Any]) -> Mapping[str, Any]:
        given.append(obj)
        return obj

    assert former_spec(CLONE_SET, SPECS, review_of(CLONE_SET, clone_set("b:2"), clone_set("a:1")), complete)
    assert "template" not in given[0]["spec"]


def test_a_creation_has_no_former_spec() -> None:
    assert former_spec(CLONE_SET, SPECS, review_of(CLONE_SET, clone_set("b:2")), with_defaults) is None
