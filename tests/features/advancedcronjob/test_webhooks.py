"""The webhooks of AdvancedCronJobs, beyond the recorded answers."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from app.features.advancedcronjob.kind import ADVANCED_CRON_JOB
from app.features.advancedcronjob.validation import spec_errors
from app.features.advancedcronjob.webhooks import handlers
from app.pods.template_check import TemplateLookups
from tests.admission.writing import ALPHA, BETA, Written, written

Json = dict[str, Any]
HANDLERS = handlers(TemplateLookups(), lambda: datetime(2026, 11, 22, tzinfo=UTC))
POD: Json = {"containers": [{"name": "main", "image": "busybox"}], "restartPolicy": "Never"}
JOB: Json = {"jobTemplate": {"spec": {"template": {"spec": POD}}}}


def images(**spec: Any) -> Json:
    body = {"images": ["busybox"], "completionPolicy": {}, **spec}
    return {"imageListPullJobTemplate": {"metadata": {"labels": {"team": "x"}}, "spec": body}}


def cron(version: str = BETA, name: str = "acj", **spec: Any) -> Json:
    return {
        "apiVersion": version,
        "kind": "AdvancedCronJob",
        "metadata": {"name": name, "namespace": "n"},
        "spec": {"schedule": "*/5 * * * *", "template": JOB, **spec},
    }


def write(obj: Json, old: Json | None = None) -> Written:
    return written(ADVANCED_CRON_JOB, HANDLERS, obj, old)


@pytest.mark.behaviour("ACJ-4")
@pytest.mark.parametrize(("template", "field"), [
    (images(completionPolicy=3), "completionPolicy"),
    ({"broadcastJobTemplate": {"spec": {"template": 5}}}, "template"),
    ({"imageListPullJobTemplate": True}, "imageListPullJobTemplate"),
])  # fmt: skip
def test_mistyped_template_fields_are_refused_by_name(template: Json, field: str) -> None:
    errors = list(spec_errors(cron(template=template)["spec"], None, [], datetime(2026, 11, 22, tzinfo=UTC)))
    assert [str(one).partition(":")[0].rpartition(".")[2] for one in errors] == [field]


@pytest.mark.behaviour("ACJ-3", "ACJ-4", "ACJ-24", "ACJ-26", "U-55")
@pytest.mark.parametrize(("obj", "words"), [
    (cron(name="a.b"), "metadata.name: Invalid value"),
    (cron(name="a" * 53), "must be no more than 52 characters"),
    (cron(schedule="TZ=UTC"), "spec.schedule: Invalid value"),
    (cron(schedule="TZ=UTC * * * * *", timeZone="UTC"), "cannot use both timeZone field and TZ or CRON_TZ"),
    (cron(schedule="TZ=UTC bad", timeZone="UTC"), "cannot use both timeZone field and TZ or CRON_TZ"),
    (cron(schedule="0 0 30 2 *"), "does not fire within the next five years"),
    (cron(template={"jobTemplate": {"spec": {"template": {"spec": {**POD, "containers": []}}}}}), "Required value"),
    (cron(template={"broadcastJobTemplate": {"spec": {"template": {"spec": {**POD, "restartPolicy": "Always"}}}}}),
     "spec.template.broadcastJobTemplate.spec.template.spec.restartPolicy: Invalid value"),
    (cron(template=images(), concurrencyPolicy="Allow"), 'supported values: "Replace", "Forbid"'),
    (cron(template=images(images=[])), "spec.template.imageListPullJobTemplate.spec.images: Required value"),
    (cron(template=images(images=["a", "a"])), "images cannot have duplicate values"),
    (cron(template=images(completionPolicy={"type": "Never"})), 'supported values: "Always"'),
    (cron(template=images(completionPolicy={"activeDeadlineSeconds": 86401})), "must be no more than 86400"),
    (cron(template=images(completionPolicy={"activeDeadlineSeconds": 5})), "must be no less than"),
    (cron(template=images(completionPolicy={"ttlSecondsAfterFinished": 5})), "ttlSecondsAfterFinished: Forbidden"),
    (cron(ALPHA, template=images()), "spec must have one template"),
])  # fmt: skip
def test_invalid_specs_are_refused(obj: Json, words: str) -> None:
    refused = write(obj)
    assert refused.obj is None
    assert words in refused.message
    assert refused.code == 422


@pytest.mark.behaviour("ACJ-1", "ACJ-2", "ACJ-5", "ACJ-25")
def test_image_pull_lists_survive_v1alpha1_and_can_change() -> None:
    created = write(cron(template=images()))
    stored = created.stored()
    assert stored["spec"]["concurrencyPolicy"] == "Replace"
    template = stored["spec"]["template"]["imageListPullJobTemplate"]
    assert template["metadata"] == {"labels": {"team": "x"}}
    assert template["spec"]["completionPolicy"] == {"type": "Always"}
    assert template["spec"]["pullPolicy"] == {"timeoutSeconds": 600, "backoffLimit": 3}
    assert template["spec"]["imagePullPolicy"] == "IfNotPresent"
    older = created.seen(ALPHA)
    assert "imageListPullJobTemplate" not in older["spec"]["template"]
    assert Written(older).stored()["spec"] == stored["spec"]
    changed = write(cron(template=images(images=["nginx"]), schedule="@daily"), stored)
    assert changed.stored()["spec"]["template"]["imageListPullJobTemplate"]["spec"]["images"] == ["nginx"]


@pytest.mark.behaviour("ACJ-24")
def test_image_list_names_may_be_longer() -> None:
    assert write(cron(name="a" * 63, template=images())).obj is not None
    assert write(cron(name="a" * 64, template=images())).obj is None


@pytest.mark.behaviour("ACJ-24", "ACJ-26")
def test_a_previously_admitted_object_stays_editable() -> None:
    stored = cron(name="a" * 60, schedule="0 0 30 2 *")
    assert write(cron(name="a" * 60, schedule="0 0 30 2 *", paused=True), stored).obj is not None


@pytest.mark.behaviour("ACJ-15")
def test_a_very_short_deadline_gets_a_warning() -> None:
    (warning,) = write(cron(startingDeadlineSeconds=0)).warnings
    assert "too short" in warning
    assert write(cron(startingDeadlineSeconds=10)).warnings == ()
