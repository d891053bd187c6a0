"""The webhooks of BroadcastJobs, beyond the recorded answers."""

from __future__ import annotations

from typing import Any

import pytest

from app.features.broadcastjob.kind import BROADCAST_JOB
from app.features.broadcastjob.webhooks import handlers
from app.pods.template_check import TemplateLookups
from tests.admission.writing import BETA, Written, written

Json = dict[str, Any]
HANDLERS = handlers(TemplateLookups())


def job(name: str = "bj", labels: Json | None = None, policy: str = "Never", **spec: Any) -> Json:
    pod = {"containers": [{"name": "main", "image": "busybox"}], "restartPolicy": policy}
    return {
        "apiVersion": BETA,
        "kind": "BroadcastJob",
        "metadata": {"name": name, "namespace": "n"},
        "spec": {"template": {"metadata": {"labels": labels or {}}, "spec": pod}, **spec},
    }


def write(obj: Json, old: Json | None = None) -> Written:
    return written(BROADCAST_JOB, HANDLERS, obj, old)


@pytest.mark.behaviour("BJ-3")
@pytest.mark.parametrize(("obj", "words"), [
    (job("a.b"), "metadata.name: Invalid value"),
    (job("a" * 64), "metadata.name: Invalid value"),
    (job(labels={"broadcastjob-name": "x"}), "spec.template.metadata.labels[broadcastjob-name]: Invalid value"),
    *((job(completionPolicy={"type": "Never", field: 1}),
     f"{field} can just work with Always") for field in ("activeDeadlineSeconds", "ttlSecondsAfterFinished",
     "backoffLimit")),
])  # fmt: skip
def test_invalid_specs_are_refused(obj: Json, words: str) -> None:
    refused = write(obj)
    assert refused.obj is None
    assert words in refused.message
    assert refused.code == 422


@pytest.mark.behaviour("BJ-25")
@pytest.mark.parametrize(("obj", "words"), [
    (job(parallelism="x"), "spec.parallelism"),
    (job(parallelism=-1), "spec.parallelism"),
    (job(completionPolicy={"type": "Bad"}), "treated as Always"),
    (job(failurePolicy={"type": "Bad"}), "treated as Continue"),
    (job(completionPolicy={"activeDeadlineSeconds": 0}), "fails the job at once"),
    (job(completionPolicy={"ttlSecondsAfterFinished": -1}),
     "spec.completionPolicy.ttlSecondsAfterFinished: -1 is treated as 0"),
    (job(failurePolicy={"restartLimit": -1}), "spec.failurePolicy.restartLimit: -1 is treated as 0"),
    (job(failurePolicy={"restartLimit": 3}), "spec.failurePolicy.restartLimit: has no effect with restartPolicy"),
    (job(completionPolicy={"backoffLimit": 3}), "completionPolicy.backoffLimit: has no effect with restartPolicy"),
])  # fmt: skip
def test_ineffective_specs_get_a_warning(obj: Json, words: str) -> None:
    (warning,) = write(obj).warnings
    assert words in warning


@pytest.mark.behaviour("BJ-25")
@pytest.mark.parametrize("parallelism", [0, 3, "10%", "200%"])
def test_valid_counts_get_no_warning(parallelism: int | str) -> None:
    assert write(job(parallelism=parallelism)).warnings == ()
