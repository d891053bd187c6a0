"""The webhook of EphemeralJob, beyond what was recorded from OpenKruise."""

from __future__ import annotations

from typing import Any

import pytest

from app.features.ephemeraljob.kind import EPHEMERAL_JOB
from app.features.ephemeraljob.webhooks import handlers
from tests.admission.writing import ALPHA, written

Json = dict[str, Any]
HANDLERS = handlers()
AT = "ephemeralContainers[0]"


def refusal(**container: Any) -> str:
    given = {"name": "debug", "image": "busybox", "imagePullPolicy": "Always", "terminationMessagePolicy": "File"}
    job: Json = {
        "apiVersion": ALPHA,
        "kind": "EphemeralJob",
        "metadata": {"name": "job", "namespace": "shop"},
        "spec": {
            "selector": {"matchLabels": {"app": "web"}},
            "template": {"ephemeralContainers": [given | container]},
        },
    }
    return written(EPHEMERAL_JOB, HANDLERS, job).message


@pytest.mark.behaviour("EJ-1")
def test_a_security_context_that_no_pod_may_have_is_refused() -> None:
    assert refusal(securityContext={"runAsUser": 1000, "privileged": True}) == ""
    assert f"{AT}.securityContext.runAsUser: Invalid value: -1" in refusal(securityContext={"runAsUser": -1})
    both = {"allowPrivilegeEscalation": False, "privileged": True}
    assert "cannot set `allowPrivilegeEscalation` to false and `privileged` to true" in refusal(securityContext=both)


@pytest.mark.behaviour("EJ-1")
def test_forbidden_fields_are_refused_even_if_they_are_empty() -> None:
    given: Json = {"ports": [], "livenessProbe": {}, "readinessProbe": {}, "startupProbe": {}, "lifecycle": {}}
    for field, value in given.items():
        assert f"{AT}.{field}: Forbidden" in refusal(**{field: value})
        assert refusal(**{field: None}) == ""
    assert refusal(resources={}) == ""


@pytest.mark.behaviour("EJ-1")
def test_forbidden_fields_are_reported_in_the_order_of_a_container() -> None:
    refused = refusal(lifecycle={"preStop": {"exec": {"command": ["ls"]}}}, resources={"limits": {"cpu": "1"}})
    assert refused.index(f"{AT}.resources: Forbidden") < refused.index(f"{AT}.lifecycle: Forbidden")
