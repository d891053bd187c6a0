from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from app.kube.quantities import IntOrPercentError
from app.workloads.predownload import (
    Decision,
    Puller,
    Rollout,
    changed_images,
    decide,
    min_updated_ready,
    outcome_label,
    parallelism,
    pull_job,
)

CREATED, IGNORED = "apps.kruise.io/pre-predownload-created", "apps.kruise.io/image-predownload-ignored"
ROLLOUT = Rollout("old", "new", {}, True, True, replicas=10, partition=0, max_unavailable=2, updated_ready=3)


@pytest.mark.parametrize(("change", "decision"), [
    pytest.param({}, Decision.CREATE, id="worth it"),
    pytest.param({"update": "old"}, Decision.CLEAN_UP, id="nothing is rolled out"),
    pytest.param({"labels": {CREATED: "true"}}, Decision.NOTHING, id="created before"),
    pytest.param({"labels": {IGNORED: "true"}}, Decision.NOTHING, id="ignored before"),
    pytest.param({"min_updated_ready": 4}, Decision.WAIT, id="not enough are ready"),
    pytest.param({"min_updated_ready": 3}, Decision.CREATE, id="enough are ready"),
    pytest.param({"in_place_policy": False}, Decision.IGNORE, id="recreate"),
    pytest.param({"in_place_possible": False}, Decision.IGNORE, id="not in place"),
    pytest.param({"replicas": 3}, Decision.IGNORE, id="few"),
    pytest.param({"max_unavailable": 10}, Decision.IGNORE, id="one batch"),
    pytest.param({"max_unavailable": 10, "partition": 1}, Decision.CREATE, id="one batch, but a partition"),
])  # fmt: skip
@pytest.mark.behaviour("PM-160", "PM-161", "PM-162", "PM-163", "PM-164", "PM-165", "PM-166")
def test_images_are_predownloaded_only_if_it_pays_off(change: Any, decision: Decision) -> None:
    assert decide(replace(ROLLOUT, **change)) is decision


@pytest.mark.behaviour("PM-162")
def test_a_label_records_the_outcome() -> None:
    assert outcome_label(Decision.CREATE) == {CREATED: "true"}
    assert outcome_label(Decision.IGNORE) == {IGNORED: "true"}
    assert outcome_label(Decision.WAIT) == {}


@pytest.mark.behaviour("PM-161", "PM-167")
def test_settings_are_counts_or_percentages() -> None:
    assert [min_updated_ready(value, 10) for value in (None, "", 2, "2", "25%")] == [0, 0, 2, 2, 3]
    assert [parallelism(value) for value in (None, "", 4, "4")] == [1, 1, 4, 4]
    for text in ("many", "1.5"):
        with pytest.raises(IntOrPercentError):
            min_updated_ready(text, 10)
    with pytest.raises(IntOrPercentError):
        parallelism("25%")


def template(**images: str) -> dict[str, Any]:
    containers = [{"name": name, "image": image} for name, image in images.items()]
    metadata = {"labels": {"app": "web"}, "annotations": {"a": "b"}}
    return {"metadata": metadata, "spec": {"containers": containers, "imagePullSecrets": [{"name": "s"}]}}


@pytest.mark.behaviour("PM-167")
def test_one_job_per_changed_image_for_nodes_of_old_pods() -> None:
    new = template(a="x:2", b="y:1", c="z:1")
    assert changed_images(template(a="x:1", b="y:1"), new) == {"a": "x:2", "c": "z:1"}
    puller = Puller("shop", {"kind": "CloneSet"}, {"matchLabels": {"app": "web"}}, new, "web-abc", "abc", 4)
    labels = {"app": "web", "controller.kubernetes.io/hash": "abc"}
    job = pull_job(puller, "a", "x:2")
    assert job["metadata"] == {
        "name": "web-abc-a",
        "namespace": "shop",
        "labels": labels,
        "ownerReferences": [{"kind": "CloneSet"}],
    }
    assert job["spec"] == {
        "image": "x:2",
        "pullSecrets": ["s"],
        "podSelector": {
            "matchLabels": {"app": "web"},
            "matchExpressions": [
                {"key": "controller-revision-hash", "operator": "NotIn", "values": ["web-abc", "abc"]}
            ],
        },
        "parallelism": 4,
        "pullPolicy": {"backoffLimit": 1, "timeoutSeconds": 300},
        "completionPolicy": {"type": "Always", "ttlSecondsAfterFinished": 600},
        "sandboxConfig": {"labels": labels, "annotations": {"a": "b"}},
    }
