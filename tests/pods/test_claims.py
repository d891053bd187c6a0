from __future__ import annotations

import random
from datetime import UTC, datetime
from typing import Any

import pytest

from app.kube.objects import ObjectMeta, PersistentVolumeClaim, Pod
from app.pods.claims import (
    claim_templates_hash,
    claims_of_pod,
    cleanup,
    free_instance_ids,
    instance_ids,
    pod_reference,
    with_claim_volumes,
)

ID = "apps.kruise.io/cloneset-instance-id"
OWNER = {"kind": "CloneSet", "name": "web", "uid": "u"}


def claim_template(name: str, storage: str = "1Mi", **metadata: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name, **metadata},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": storage}}},
    }


def claim(id_: str, *, going: bool = False) -> PersistentVolumeClaim:
    moment = datetime(2026, 1, 1, tzinfo=UTC) if going else None
    labels = {ID: id_} if id_ else {}
    return PersistentVolumeClaim(
        metadata=ObjectMeta(f"data-web-{id_}", uid=id_, labels=labels, deletion_timestamp=moment)
    )


def pod(id_: str) -> Pod:
    return Pod(ObjectMeta(f"web-{id_}", uid=f"uid-{id_}", labels={ID: id_}))


@pytest.mark.behaviour("CS-71")
def test_the_hash_of_claim_templates_counts_names_and_specs_only() -> None:
    assert claim_templates_hash(None) == claim_templates_hash([]) == ""
    # What OpenKruise's manager recorded.
    assert claim_templates_hash([claim_template("data")]) == "679419538"
    one, two = claim_template("a"), claim_template("b", "2Mi")
    both = claim_templates_hash([one, two])
    assert claim_templates_hash([two, {**one, "status": {"phase": "Pending"}}]) == both
    assert claim_templates_hash([claim_template("a", labels={"x": "y"}), two]) == both
    assert claim_templates_hash([one, claim_template("b", "3Mi")]) != both


@pytest.mark.behaviour("CS-116", "CS-118")
def test_a_new_pod_gets_the_claims_it_lacks() -> None:
    templates = [
        claim_template("data", labels={"own": "1", "app": "mine"}, annotations={"a": "b"}),
        claim_template("logs"),
    ]
    made = claims_of_pod(templates, "web-abcde", "shop", OWNER, {"app": "web", ID: "abcde"}, {"logs-web-abcde"})
    assert made == [
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {
                "name": "data-web-abcde",
                "namespace": "shop",
                "labels": {"own": "1", "app": "web", ID: "abcde"},
                "annotations": {"a": "b"},
                "ownerReferences": [OWNER],
            },
            "spec": templates[0]["spec"],
        }
    ]


@pytest.mark.behaviour("CS-117", "CS-189")
def test_free_ids_have_claims_without_pods() -> None:
    claims = [claim("zzz"), claim("aaa"), claim("used"), claim("going", going=True), claim("held"), claim("")]
    assert free_instance_ids([pod("used")], claims, {"held"}) == ["aaa", "zzz"]


@pytest.mark.behaviour("CS-115", "CS-117")
def test_free_ids_come_first_and_new_ones_are_unused() -> None:
    rng = random.Random(1)
    known = instance_ids(50, [], (), random.Random(1))
    ids = instance_ids(5, ["zzzzz", "aaaaa"], known, rng)
    assert {"aaaaa", "zzzzz"} < set(ids)
    assert len(set(ids) - set(known)) == 5
    assert ids == sorted(ids)
    assert instance_ids(1, ["b", "c"], (), rng) == ["b"]


@pytest.mark.behaviour("CS-118")
def test_claims_precede_other_volumes_and_replace_those_with_their_name() -> None:
    volumes = [{"name": "logs", "emptyDir": {}}, {"name": "tmp", "emptyDir": {}}]
    found = with_claim_volumes(volumes, [claim_template("data"), claim_template("logs")], "web-x")
    assert [(volume["name"], "persistentVolumeClaim" in volume) for volume in found] == [
        ("data", True),
        ("logs", True),
        ("tmp", False),
    ]
    assert found[0]["persistentVolumeClaim"] == {"claimName": "data-web-x"}


@pytest.mark.behaviour("CS-120")
def test_unused_claims_are_deleted_with_their_pod_or_at_once() -> None:
    found = cleanup([claim("on"), claim("off"), claim("lost"), claim("")], [pod("on")], [pod("off")])
    assert [(c.metadata.uid, p.metadata.name) for c, p in found.hand_over] == [("off", "web-off")]
    assert [c.metadata.uid for c in found.delete] == ["lost"]
    assert [c.metadata.uid for c in found.kept] == ["on", ""]
    assert pod_reference(pod("off"))["uid"] == "uid-off"
