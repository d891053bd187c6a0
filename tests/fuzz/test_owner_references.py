"""A forged owner reference affects nothing, whichever controller reads it.

Users may add any owner reference to the objects they create, with the uid of any other object. Each controller is shown
objects of each kind it watches, owned by each other kind it watches. The owner's uid may affect its writes only if
group, kind, namespace and name match the owner too.
"""

import logging
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from app.framework.feature import ControllerPart
from app.framework.watched import Watched
from app.kube.resources import ObjectKey
from tests.fuzz import cluster, objects
from tests.fuzz.controllers import Trial, parts
from tests.kit import virtualtime
from tests.nightly import NIGHTLY

UNRELATED = "unrelated-uid"
#: Fields of a forged reference that differ from the owner's.
FORGED: dict[str, dict[str, str]] = {
    "group": {"apiVersion": "example.com/v1"},
    "kind": {"kind": "Forged"},
    "name": {"name": "forged"},
    "namespace": {},
}
#: Kinds of dependents and owners for which a valid reference must change a controller's writes; otherwise the test
#: would compare nothing.
READ: dict[str, set[tuple[str, str]]] = {
    "cloneset-controller": {("Pod", "CloneSet"), ("PersistentVolumeClaim", "CloneSet")},
    "statefulset-controller": {("Pod", "StatefulSet"), ("ControllerRevision", "StatefulSet")},
    "daemonset-controller": {("Pod", "DaemonSet"), ("ControllerRevision", "DaemonSet")},
    "uniteddeployment-controller": {(kind, "UnitedDeployment") for kind in ("CloneSet", "Deployment", "StatefulSet")},
    "broadcastjob-controller": {("Pod", "BroadcastJob")},
    "advancedcronjob-controller": {(kind, "AdvancedCronJob") for kind in ("BroadcastJob", "ImageListPullJob", "Job")},
    "podunavailablebudget-controller": {("Pod", "CloneSet")},
    "workloadspread-controller": {("Pod", "CloneSet")},
    "imagelistpulljob-controller": {("ImagePullJob", "ImageListPullJob")},
    "resourcedistribution-controller": {("Secret", "ResourceDistribution")},
}
PARTS = [part for part in parts() if NIGHTLY or part.name in READ]


def dependents(owner: objects.Json, given: objects.Json, uid: str, *, forged: bool) -> Iterator[objects.Json]:
    """Return objects owned by ``owner``, which has this uid; if ``forged``, one per way to forge the reference."""
    for number, (field, other) in enumerate(FORGED.items() if forged else [("true", {})]):
        reference = cluster.controller_reference(owner, uid=uid, **other)
        metadata = {**given["metadata"], "name": f"web-{number}", "uid": f"uid-{field}", "ownerReferences": [reference]}
        if field == "namespace":
            metadata["namespace"] = "elsewhere"
        yield {**given, "metadata": metadata}


async def writes(part: ControllerPart, one: Watched[Any], owner: Watched[Any], uid: str, *, forged: bool) -> list[Any]:
    """Return the controller's writes after it has seen such objects."""
    trial = Trial(part, Random(1))
    owned_by = trial.right[owner.name]
    given = trial.right[one.name]
    if given["kind"] == "Pod":
        given = {**given, **{field: cluster.serving_pod()[field] for field in ("spec", "status")}}
    for obj in dependents(owned_by, given, uid or owned_by["metadata"]["uid"], forged=forged):
        await trial.show(one, obj, "forged" if forged else "owned")
    for obj in trial.right.values():
        await trial.work_on(ObjectKey(obj["metadata"].get("namespace", ""), obj["metadata"]["name"]), "all")
    assert trial.problems == []
    return trial.writes


def pairs(part: ControllerPart) -> Iterator[tuple[Watched[Any], Watched[Any]]]:
    """Return the kinds of dependents and owners in READ; in a nightly run, each kind with each other."""
    for one in part.watched:
        for owner in part.watched:
            kinds = (one.resource.kind, owner.resource.kind)
            if one.resource.namespaced and kinds[0] != kinds[1] and (NIGHTLY or kinds in READ[part.name]):
                yield one, owner


@pytest.mark.parametrize("part", PARTS, ids=[part.name for part in PARTS])
def test_a_forged_owner_reference_affects_nothing(part: ControllerPart, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL + 1)

    def written(one: Watched[Any], owner: Watched[Any], uid: str, *, forged: bool) -> list[Any]:
        return virtualtime.run(writes(part, one, owner, uid, forged=forged))

    read = set()
    for one, owner in pairs(part):
        if written(one, owner, "", forged=False) != written(one, owner, UNRELATED, forged=False):
            read.add((one.resource.kind, owner.resource.kind))
            forged = written(one, owner, "", forged=True)
            assert forged == written(one, owner, UNRELATED, forged=True), (one.name, owner.name)
    assert read >= READ.get(part.name, set())
