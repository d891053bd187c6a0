"""A StatefulSet left by OpenKruise is taken over without a write."""

from __future__ import annotations

from typing import Any

import pytest

from app.api import names
from tests.features.statefulset.shell import Shell
from tests.kube.fakes import virtual
from tests.openkruise import _items


def recorded() -> list[dict[str, Any]]:
    found = {str(one["metadata"]["uid"]): one for one in _items("10-statefulset.json")}
    mine = ("StatefulSet", "Pod", "PersistentVolumeClaim", "ControllerRevision")
    return [one for one in found.values() if one["kind"] in mine and not one["metadata"]["name"].startswith("ud")]


def filled(change: dict[str, Any] | None = None, *, state: str | None = "Normal") -> Shell:
    """``state``: the lifecycle state of Pods."""
    shell = Shell()
    for one in recorded():
        if one["kind"] == "Pod" and state is None:
            del one["metadata"]["labels"][names.LIFECYCLE_STATE]
        if one["kind"] == "StatefulSet" and change:
            metadata = {**one["metadata"], "generation": 3}
            one = {**one, "metadata": metadata, "spec": {**one["spec"], **change}}
        shell.show(one)
    return shell


@pytest.mark.behaviour("AS-63", "AS-70", "AS-89")
@virtual
async def test_an_adopted_set_can_be_changed() -> None:
    """Reserves ordinal 3 with whenScaled Delete: Pod 5 is created, and Pod 3 is deleted with its claim."""
    shell = filled({"reserveOrdinals": [1, 3]})
    await shell.reconcile("st", "moving")
    (made,) = shell.bodies("POST", "/pods")
    assert (made["metadata"]["name"], made["spec"]["hostname"]) == ("st-5", "st-5")
    (claim,) = shell.bodies("POST", "/persistentvolumeclaims")
    assert claim["metadata"]["name"] == "d-st-5"
    writes = [(method, path.rpartition("/")[2]) for method, path in shell.writes]
    assert writes.index(("PATCH", "d-st-3")) < writes.index(("DELETE", "st-3"))
    (patch,) = shell.bodies("PATCH", "/persistentvolumeclaims/d-st-3")
    assert [one["kind"] for one in patch["metadata"]["ownerReferences"]] == ["Pod"]


@pytest.mark.behaviour("AS-100", "AS-109", "PM-55")
@pytest.mark.parametrize(("state", "written"), [("Normal", "Updating"), (None, None)])
@virtual
async def test_lowering_the_partition_continues_the_rollout_of_openkruise(
    state: str | None, written: str | None
) -> None:
    """Pods of a native StatefulSet have no lifecycle state and get none."""
    rolling = {"maxUnavailable": 2, "minReadySeconds": 0, "partition": 0, "podUpdatePolicy": "InPlaceIfPossible"}
    shell = filled({"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": rolling}}, state=state)
    await shell.reconcile("st", "moving")
    patched = {path.partition("/pods/")[2] for method, path in shell.writes if "/pods/" in path}
    assert {name.partition("/")[0] for name in patched} == {"st-2", "st-0"}
    *_, started = shell.bodies("PATCH", "/pods/st-2")
    assert started["metadata"]["labels"].get(names.LIFECYCLE_STATE) == written
    assert ("SuccessfulUpdatePodInPlace", "successfully update pod st-2 in-place(revision st-6c474b57d)") in (
        await shell.events()
    )
