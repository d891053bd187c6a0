"""The defaults of Pod templates, through the webhook of every workload that has them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from app.api.kind import KindDefinition
from app.features.advancedcronjob import webhooks as advancedcronjob
from app.features.advancedcronjob.kind import ADVANCED_CRON_JOB
from app.features.broadcastjob import webhooks as broadcastjob
from app.features.broadcastjob.kind import BROADCAST_JOB
from app.features.cloneset import webhooks as cloneset
from app.features.cloneset.kind import CLONE_SET
from app.features.cloneset.webhooks import CloneSetLookups
from app.features.statefulset import webhooks as statefulset
from app.features.statefulset.kind import STATEFUL_SET
from app.features.uniteddeployment import webhooks as uniteddeployment
from app.features.uniteddeployment.kind import UNITED_DEPLOYMENT
from app.kube.admission import Handler
from app.pods.template_check import HOST_PORTS_GATE, TemplateLookups
from tests.admission.writing import written

Json = dict[str, Any]
LABELS = {"app": "web"}
SELECTOR = {"matchLabels": LABELS}
TEMPLATE = {
    "metadata": {"labels": LABELS},
    "spec": {
        "hostNetwork": True,
        "containers": [{"name": "main", "image": "nginx:1", "ports": [{"containerPort": 80}]}],
        "initContainers": [{"name": "init", "image": "nginx:1", "ports": [{"containerPort": 81}]}],
    },
}
FINITE = {**TEMPLATE, "spec": {**TEMPLATE["spec"], "restartPolicy": "Never"}}
SPECS = {
    CLONE_SET: {"selector": SELECTOR, "template": TEMPLATE},
    STATEFUL_SET: {"selector": SELECTOR, "serviceName": "web", "template": TEMPLATE},
    BROADCAST_JOB: {"template": FINITE},
    ADVANCED_CRON_JOB: {"schedule": "0 0 * * *", "template": {"broadcastJobTemplate": {"spec": {"template": FINITE}}}},
    UNITED_DEPLOYMENT: {
        "selector": SELECTOR,
        "template": {
            "statefulSetTemplate": {
                "metadata": {"labels": LABELS},
                "spec": {"selector": SELECTOR, "template": TEMPLATE},
            }
        },
        "topology": {"subsets": [{"name": "a"}]},
    },
}
KINDS = pytest.mark.parametrize("kind", SPECS, ids=[kind.kind for kind in SPECS])


def handlers(kind: KindDefinition, *gates: str) -> Sequence[Handler]:
    def enabled(gate: str) -> bool:
        return gate in gates

    templates = TemplateLookups(enabled)
    by_kind = {
        CLONE_SET: lambda: cloneset.handlers(CloneSetLookups(enabled)),
        STATEFUL_SET: lambda: statefulset.handlers(statefulset.Lookups(enabled)),
        BROADCAST_JOB: lambda: broadcastjob.handlers(templates),
        ADVANCED_CRON_JOB: lambda: advancedcronjob.handlers(templates, lambda: datetime(2026, 11, 22, tzinfo=UTC)),
        UNITED_DEPLOYMENT: lambda: uniteddeployment.handlers(templates),
    }
    return by_kind[kind]()


def manifest(kind: KindDefinition) -> Json:
    metadata = {"name": "w", "namespace": "shop"}
    return {"apiVersion": f"{kind.group}/v1beta1", "kind": kind.kind, "metadata": metadata, "spec": SPECS[kind]}


def pod_spec(obj: Any) -> Json:
    """Return the spec of the Pod template, at any depth."""
    if isinstance(obj, dict) and "hostNetwork" in obj:
        return obj
    inner = obj.values() if isinstance(obj, dict) else obj if isinstance(obj, list) else ()
    return next((found for value in inner if (found := pod_spec(value))), {})


def ports(obj: Any) -> list[Json]:
    spec = pod_spec(obj)
    return [spec[field][0]["ports"][0] for field in ("containers", "initContainers")]


@KINDS
@pytest.mark.behaviour("CS-18")
def test_host_ports_are_defaulted_with_their_gate(kind: KindDefinition) -> None:
    assert [port.get("hostPort") for port in ports(written(kind, handlers(kind), manifest(kind)).stored())] == [
        None
    ] * 2
    filled = written(kind, handlers(kind, HOST_PORTS_GATE), manifest(kind)).stored()
    assert [port.get("hostPort") for port in ports(filled)] == [80, 81]


@KINDS
@pytest.mark.behaviour("CS-16")
@pytest.mark.parametrize("gates", [(), (HOST_PORTS_GATE,)], ids=["", "host ports"])
def test_reapplying_a_manifest_keeps_a_template_of_another_installation(
    kind: KindDefinition, gates: tuple[str, ...]
) -> None:
    stored = written(kind, handlers(kind), manifest(kind)).obj
    assert stored is not None
    pod_spec(stored)["initContainers"][0]["imagePullPolicy"] = "IfNotPresent"
    again = written(kind, handlers(kind, *gates), manifest(kind), stored)
    assert pod_spec(again.stored()) == pod_spec(stored)
