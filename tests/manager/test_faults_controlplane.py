"""A replica that lacks permissions or CRDs, or whose API server misbehaves, on a real API server."""

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest

from app.manager.features import features
from app.manager.gates import parse_gates
from app.manager.rbac import default_rules
from tests.cluster import binaries
from tests.cluster.controlplane import ControlPlane
from tests.cluster.recording import SERVICE_ACCOUNT
from tests.manager.replicas import configuration, election, published, replica
from tests.scenarios.world import SYSTEM_NAMESPACE, eventually, install
from tests.seeds import seed_of_commit

pytestmark = [pytest.mark.controlplane, pytest.mark.alone]
ROLES = (("clusterrole", "kruise-manager-role"), ("role", "kruise-manager-namespaced-role"))
#: Without these no review can be answered, and the replica is not ready.
NEEDED = {
    **{
        watched.resource.plural: f"caches: {watched.name} are not filled yet"
        for declared in features()
        for watched in declared.watched_for_admission(parse_gates("").enabled)
    },
    "secrets": "certificate: there is none yet",
    "mutatingwebhookconfigurations": "webhooks: not registered yet",
    "validatingwebhookconfigurations": "webhooks: not registered yet",
}
#: Every user may request this (system:basic-user).
EVERY_RESOURCE = sorted(
    {resource for rule in default_rules() for resource in rule.resources} - {"selfsubjectrulesreviews"}
)
#: Permissions that reviews and leadership need, and a few others, which rotate with the commit.
#: PYKRUISE_ALL_RIGHTS=1 tests all of them.
RESOURCES = (
    EVERY_RESOURCE
    if os.environ.get("PYKRUISE_ALL_RIGHTS")
    else sorted({*NEEDED, "leases", "pods", *Random(seed_of_commit()).sample(EVERY_RESOURCE, 8)})
)
ELECTION = election()


@pytest.fixture(scope="module")
def control_plane() -> Iterator[ControlPlane]:
    """A control plane without other webhooks."""
    with ControlPlane() as started:
        install(started, gates=False)
        yield started


@contextmanager
def without_right(control_plane: ControlPlane, resource: str) -> Iterator[None]:
    """Use the generated roles without any verb on one resource, inside the context."""
    where = ("-n", SYSTEM_NAMESPACE)
    before = [json.loads(control_plane.kubectl("get", *role, *where, "-o", "json").stdout) for role in ROLES]
    verb, group = next((rule.verbs[0], rule.groups[0]) for rule in default_rules() if resource in rule.resources)
    question = (verb, f"{resource.partition('/')[0]}.{group}".rstrip("."), *where, f"--as={SERVICE_ACCOUNT}")
    subresource = ("--subresource", resource.partition("/")[2]) if "/" in resource else ()

    def may() -> bool:
        return control_plane.kubectl("auth", "can-i", *question, *subresource, check=False).stdout.strip() == "yes"

    for role, found in zip(ROLES, before, strict=True):
        rules = [
            {**rule, "resources": left}
            for rule in found["rules"]
            if (left := [one for one in rule["resources"] if one != resource])
        ]
        change(control_plane, role, rules)
    try:
        eventually(lambda: not may(), f"the permission to {verb} {resource} is revoked")
        yield
    finally:
        for role, found in zip(ROLES, before, strict=True):
            change(control_plane, role, found["rules"])


def change(control_plane: ControlPlane, role: tuple[str, str], rules: list[dict[str, Any]]) -> None:
    patch = json.dumps({"rules": rules})
    control_plane.kubectl("patch", *role, "-n", SYSTEM_NAMESPACE, "--type=merge", "-p", patch)


@pytest.fixture(scope="module")
def installed(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> ControlPlane:
    """A replica has run before: the Secret, the Lease and both configurations exist."""
    with replica(control_plane, tmp_path_factory.mktemp("first"), *ELECTION) as first:
        eventually(first.leads, "it leads")
    return control_plane


@pytest.mark.parametrize("resource", RESOURCES)
def test_one_missing_right_is_named_and_the_rest_works(installed: ControlPlane, tmp_path: Path, resource: str) -> None:
    with without_right(installed, resource), replica(installed, tmp_path, *ELECTION, ready=False) as one:
        if fault := NEEDED.get(resource):
            eventually(lambda: fault in one.fault(), "it reports what it waits for", 90)
        else:
            eventually(one.ready, f"it is ready without {resource}; its log is {one.log}", 90)
            one.review(published(installed))

        def named() -> bool:
            said = [line for line in one.log.read_text().splitlines() if "missing permission" in line]
            return any(f" {resource}" in line for line in said) or f'resource "{resource}"' in one.log.read_text()

        eventually(named, "the right is named", 60)
        if resource not in ("leases", *NEEDED):
            eventually(one.leads, "it leads", 60)
            assert one.metric("kruise_manager_missing_rights") >= 1
    assert "Traceback" not in one.log.read_text()


def test_a_hanging_api_server_blocks_no_review_and_is_retried(installed: ControlPlane, tmp_path: Path) -> None:
    with replica(installed, tmp_path, *ELECTION) as one:
        eventually(one.leads, "it leads")
        bundle, before = published(installed), one.processes()
        server = installed.run.processes[binaries.API_SERVER]
        os.kill(server.pid, signal.SIGSTOP)
        try:
            eventually(lambda: "was not renewed for 3 s" in one.log.read_text(), "it gives its Lease up", 60)
            one.review(bundle)
            assert one.ready()
        finally:
            os.kill(server.pid, signal.SIGCONT)
        eventually(one.leads, "it leads again", 60)
        after = one.processes()
        assert {name: pid for name, pid in after.items() if name != "reconciler"} == {
            name: pid for name, pid in before.items() if name != "reconciler"
        }
        one.review(bundle)
    assert "Traceback" not in one.log.read_text()


def test_two_versions_answer_each_other_and_keep_each_others_entries(installed: ControlPlane, tmp_path: Path) -> None:
    """Versions differ in the webhooks they know; a gate creates that difference here."""
    older, newer = "--feature-gates=PodWebhook=false", "--feature-gates=ResourcesDeletionProtection=false"
    with (
        replica(installed, tmp_path, *ELECTION, older, by_service=True) as first,
        replica(installed, tmp_path, *ELECTION, newer, by_service=True) as second,
    ):
        bundle = published(installed)
        for one in (first, second):
            one.review(bundle)  # the first does not serve that webhook, and allows the Pod

        def entries() -> list[tuple[str, list[str]]]:
            both = [configuration(installed, kind) for kind in ("mutating", "validating")]
            return [
                (found["metadata"]["resourceVersion"], [entry["name"] for entry in found["webhooks"]])
                for found in both
                if found is not None
            ]

        def both_known() -> bool:
            names = {name for _, found in entries() for name in found}
            return {"mpod.kb.io", "vservice.kb.io"} <= names

        eventually(both_known, "the entries of both exist")
        settled = entries()
        began = syncs(first), syncs(second)
        for number in range(5):
            # One of our objects changes: both check everything again.
            label = f"looked={number}"
            installed.kubectl("label", "--overwrite", "crd", "sidecarsets.apps.kruise.io", label)
        eventually(lambda: syncs(first) > began[0] and syncs(second) > began[1], "both have looked")
        assert entries() == settled


def syncs(one: Any) -> float:
    """Return how often a replica has read the CRDs of its kinds."""
    found = [
        float(line.rpartition(" ")[2])
        for line in one.page(one.metrics_port, "metrics").splitlines()
        if line.startswith('kruise_reflector_events_total{kind="CustomResourceDefinition"}')
    ]
    return found[0] if found else 0.0
