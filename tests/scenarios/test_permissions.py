"""The manager's permissions, judged by the API server. All other scenarios run with these permissions only."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from app.kube.admission import PolicyRule
from app.manager.rbac import all_rules
from tests.scenarios import levels
from tests.scenarios.world import SYSTEM_NAMESPACE

_LOOKED_UP = "an object that a cache lacks is read"
_FINALIZED = "checked by the API server when something names its owner"
_CLEANED_UP = "its time is over, or its owner or node is gone"
_TARGET = "a budget or a spread has such a target"
_SUBSET = "a subset of that kind is removed from the topology"
_ADMISSION = "admissionregistration.k8s.io"
#: Verb, group and resource that the manager does not request in these scenarios → when it does. (It lists where the API
#: server cannot start a watch from the cache.)
NOT_ASKED: dict[tuple[str, str, str], str] = {
    ("get", "", "namespaces"): _LOOKED_UP,
    ("get", "apps.kruise.io", "sidecarsets"): _LOOKED_UP,
    ("get", "apps.kruise.io", "workloadspreads"): _LOOKED_UP,
    ("get", "apps", "statefulsets"): _LOOKED_UP,
    ("get", "", "pods"): "after a conflict",
    ("get", "apps.kruise.io", "containerrecreaterequests"): "a request of that name already exists",
    ("delete", "", "configmaps"): "a Pod finds the barrier of an earlier one of its name",
    ("delete", "apps", "controllerrevisions"): "a set has more than its limit",
    ("get", "apps", "controllerrevisions"): "the name of a revision is already taken",
    ("list", "", "nodes"): "a CloneSet whose template spreads its Pods scales in",
    ("patch", "", "persistentvolumeclaims"): "a claim is deleted with its Pod",
    ("patch", "", "pods/resize"): "resources change in place",
    ("patch", "apps", "controllerrevisions"): "a set is rolled back",
    ("update", "", "pods/finalizers"): "checked by the API server when a claim is deleted with its Pod",
    ("update", "apps.kruise.io", "clonesets/finalizers"): "checked by the API server when a Pod names its owner",
    ("patch", "", "events"): "the same happens again",
    ("update", "", "secrets"): "certificates are renewed or repaired",
    ("update", _ADMISSION, "mutatingwebhookconfigurations"): "another client changed them",
    ("update", _ADMISSION, "validatingwebhookconfigurations"): "another client changed them",
    **{
        ("update", "apps.kruise.io", f"{plural}/finalizers"): _FINALIZED
        for plural in (
            "advancedcronjobs",
            "broadcastjobs",
            "daemonsets",
            "imagelistpulljobs",
            "resourcedistributions",
            "sidecarsets",
            "statefulsets",
            "uniteddeployments",
        )
    },
    **{
        ("get", "apps.kruise.io", plural): _LOOKED_UP
        for plural in (
            "advancedcronjobs",
            "broadcastjobs",
            "ephemeraljobs",
            "imagelistpulljobs",
            "persistentpodstates",
            "podprobemarkers",
            "resourcedistributions",
            "uniteddeployments",
        )
    },
    ("get", "", "persistentvolumeclaims"): _LOOKED_UP,
    ("get", "", "replicationcontrollers"): _TARGET,
    ("get", "", "replicationcontrollers/scale"): _TARGET,
    ("get", "apps", "daemonsets"): _TARGET,
    ("get", "apps.kruise.io", "uniteddeployments/scale"): _TARGET,
    ("get", "batch", "cronjobs"): _TARGET,
    ("get", "batch", "jobs"): _TARGET,
    ("create", "", "pods/eviction"): "gate RepairMissedPods is on",
    ("create", "apps.kruise.io", "imagelistpulljobs"): "an AdvancedCronJob has a template of one",
    ("delete", "apps.kruise.io", "imagelistpulljobs"): _CLEANED_UP,
    ("delete", "apps.kruise.io", "ephemeraljobs"): _CLEANED_UP,
    ("delete", "apps.kruise.io", "nodeimages"): _CLEANED_UP,
    ("delete", "apps.kruise.io", "nodepodprobes"): _CLEANED_UP,
    ("delete", "batch", "jobs"): _CLEANED_UP,
    ("patch", "", "secrets"): "a distributed or copied Secret differs from its source",
    ("delete", "apps", "statefulsets"): _SUBSET,
    ("delete", "apps.kruise.io", "clonesets"): _SUBSET,
    ("delete", "apps.kruise.io", "statefulsets"): _SUBSET,
    ("list", "storage.k8s.io", "storageclasses"): "a claim template asks for more than before",
    ("patch", "apps.kruise.io", "broadcastjobs"): "a failure pauses it",
    ("patch", "apps.kruise.io", "nodeimages/status"): "a Node is no longer ready",
    ("patch", "apps.kruise.io", "persistentpodstates"): "a workload's annotations change",
}


def asked(event: dict[str, Any]) -> tuple[str, str, str]:
    what = event["objectRef"]
    subresource = f"/{what['subresource']}" if "subresource" in what else ""
    return event["verb"], what.get("apiGroup", ""), what["resource"] + subresource


@pytest.fixture(params=[levels.SIMULATED_NODES, levels.REAL_CONTAINERS])
def recorded_requests(request: pytest.FixtureRequest) -> list[dict[str, Any]]:
    """Return what the managers of a level requested in earlier scenarios, from the audit log."""
    record = levels.RECORDED / f"{request.param}.jsonl"
    if not record.exists():
        pytest.skip(f"no scenario ran on {request.param} before")
    events = [json.loads(line) for line in record.read_text().splitlines()]
    # Every authenticated user may discover what is served.
    discovery = [event for event in events if "objectRef" not in event]
    anybody = ('ClusterRole "system:discovery"', 'ClusterRole "system:public-info-viewer"')
    assert all(any(role in judged(event)[1] for role in anybody) for event in discovery)
    return [event for event in events if "objectRef" in event]


@pytest.mark.recorded
@pytest.mark.behaviour("CS-174")
def test_every_request_of_all_scenarios_is_allowed_by_the_generated_roles(
    recorded_requests: list[dict[str, Any]],
) -> None:
    """Uses the API server's audit log, with the reasons of its authorizer."""
    assert len(recorded_requests) > 100
    roles = ('ClusterRole "kruise-manager-', 'Role "kruise-manager-')
    found = {(*asked(event), *judged(event)) for event in recorded_requests}
    # Every user may ask for their own permissions, so the authorizer does not reach our role.
    otherwise = [
        one
        for one in sorted(found)
        if one[2] != "selfsubjectrulesreviews" and not (one[3] == "allow" and any(role in one[4] for role in roles))
    ]
    assert otherwise == []
    assert all(event["userAgent"].startswith("kruise-manager") for event in recorded_requests)


def judged(event: dict[str, Any]) -> tuple[str, str]:
    annotations = event["annotations"]
    return annotations["authorization.k8s.io/decision"], annotations["authorization.k8s.io/reason"]


@pytest.mark.recorded
@pytest.mark.parametrize("recorded_requests", [levels.SIMULATED_NODES], indirect=True)
def test_every_generated_right_is_needed_by_a_scenario(
    recorded_requests: list[dict[str, Any]], request: pytest.FixtureRequest
) -> None:
    if request.config.getoption("--sample"):
        pytest.skip("only all scenarios together need every right")
    needed = {asked(event) for event in recorded_requests}
    granted = {one for rule in all_rules() for one in spelled_out(rule)}
    instead_of_a_watch = {("list", group, resource) for verb, group, resource in needed if verb == "watch"}
    assert sorted(granted - needed - instead_of_a_watch - set(NOT_ASKED)) == []
    assert sorted(set(NOT_ASKED) - granted) == []


def spelled_out(rule: PolicyRule) -> Iterator[tuple[str, str, str]]:
    for verb in rule.verbs:
        for group in rule.groups:
            for resource in rule.resources:
                yield verb, group, resource


@pytest.mark.recorded
def test_secrets_are_read_by_name_in_the_own_namespace(recorded_requests: list[dict[str, Any]]) -> None:
    asked_for = [event for event in recorded_requests if event["objectRef"]["resource"] == "secrets"]
    own = {"namespace": SYSTEM_NAMESPACE, "name": "kruise-webhook-certs"}
    # A creation has no name in its path. Other requests for Secrets are behind a gate with its own roles.
    others = [event for event in asked_for if not {"name": own["name"], **event["objectRef"]}.items() >= own.items()]
    behind_a_gate = ('gate-role"', 'gate-namespaced-role"', 'pull-secrets-role"')
    assert [
        event["requestURI"] for event in others if not any(role in judged(event)[1] for role in behind_a_gate)
    ] == []
    assert len(others) < len(asked_for)
