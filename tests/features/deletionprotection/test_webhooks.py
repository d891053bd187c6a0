from __future__ import annotations

from typing import Any

import pytest

from app.features.deletionprotection.plan import Gates
from app.features.deletionprotection.webhooks import handlers
from app.kube.admission import Allowed, Operation, Review
from tests.features.deletionprotection.reviews import KINDS, LABEL, TABLE, Cluster, deletion, protected


def written(kind: str, value: str | None) -> Review:
    return deletion(kind, None, operation=Operation.CREATE, object=protected(kind, value))


def decide(review: Review) -> Any:
    found = {handler.webhook.name: handler for handler in handlers(TABLE, Cluster(), Gates(), lambda *_: None)}
    return found["vdeletionprotectionlabel.kb.io"].decide(review)


@pytest.mark.parametrize(
    ("kind", "value", "warning"),
    [
        ("Deployment", "always", "always protects nothing here: kind Deployment supports Always and Cascading"),
        ("Service", "on", "on protects nothing here: kind Service supports Always"),
        ("Service", "Cascading", "Cascading protects nothing here: kind Service supports Always"),
        ("Ingress", "Cascading", "Cascading protects nothing here: kind Ingress supports Always"),
    ],
)
@pytest.mark.behaviour("DP-54", "DP-6")
def test_an_ineffective_label_gets_a_warning(kind: str, value: str, warning: str) -> None:
    assert decide(written(kind, value)) == Allowed((f"label {LABEL}={warning}",))


CASCADING = ("Namespace", "CustomResourceDefinition", "Deployment", "ReplicaSet", "StatefulSet")


@pytest.mark.parametrize(
    ("kind", "value"),
    [*((kind, value) for kind in KINDS for value in (None, "Always")), *((kind, "Cascading") for kind in CASCADING)],
)
@pytest.mark.behaviour("DP-54")
def test_an_effective_label_gets_no_warning(kind: str, value: str | None) -> None:
    assert decide(written(kind, value)) == Allowed()


@pytest.mark.parametrize("obj", [None, {}, {"metadata": 1}, {"metadata": {"labels": 1}}, {"metadata": {"labels": {}}}])
def test_label_writes_are_always_allowed(obj: Any) -> None:
    assert decide(deletion("Deployment", None, operation=Operation.CREATE, object=obj)) == Allowed()
