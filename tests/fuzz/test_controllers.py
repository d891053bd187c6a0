"""Controllers report malformed objects from their caches. `make fuzz` shows random ones to every controller."""

from random import Random
from typing import Any

import pytest

from app.kube.resources import ObjectKey
from tests.fuzz import objects
from tests.fuzz.controllers import Trial, parts
from tests.kit import virtualtime

TEMPLATE = ("spec", "template", "metadata")


@pytest.mark.parametrize(
    ("controller", "field", "value"),
    [
        ("cloneset-controller", TEMPLATE, 7.5),
        ("statefulset-controller", TEMPLATE, ["x"]),
        ("daemonset-controller", (*TEMPLATE, "labels"), "x"),
        ("broadcastjob-controller", TEMPLATE, {"finalizers": 3}),
        ("uniteddeployment-controller", ("spec", "template", "cloneSetTemplate", "metadata", "labels"), 3),
        ("uniteddeployment-controller", ("spec", "template", "cloneSetTemplate", "spec", "template", "spec"), []),
        ("imagelistpulljob-controller", ("spec", "selector"), {"names": [{}]}),
        ("podunavailablebudget-controller", ("spec", "maxUnavailable"), "x"),
    ],
)
def test_a_mistyped_stored_field_is_reported_in_an_event(controller: str, field: tuple[str, ...], value: Any) -> None:
    part = next(one for one in parts() if one.name == controller)

    async def shown() -> Trial:
        trial = Trial(part, Random(1))
        primary = part.watched[0]
        given = trial.right[primary.name]
        given["spec"].setdefault(field[1], {})
        metadata = {**given["metadata"], "generation": 2, "resourceVersion": "8"}
        obj = objects.replaced({**given, "metadata": metadata}, field, value)
        await trial.show(primary, obj, "wrong type")
        await trial.work_on(ObjectKey(metadata["namespace"], metadata["name"]), "again")
        return trial

    trial = virtualtime.run(shown())
    assert trial.problems == []
    assert any(message.startswith(".".join(field)) for message in trial.events.warnings), trial.events.warnings
