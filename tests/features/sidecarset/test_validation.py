"""Annotations that a SidecarSet may patch: by the whitelist, or by the gate if no rule applies."""

from __future__ import annotations

import json
from typing import Any

import pytest

from app.features.sidecarset.validation import refusal
from tests.features.writing import Lookups, sidecar_set, write

MESH = r"^mesh\.example/.*$"
LIST = json.dumps(
    {
        "rules": [
            {"allowedAnnotationKeyExprs": ["^oom-score$"]},
            {"selector": {"matchLabels": {"team": "mesh"}}, "allowedAnnotationKeyExprs": [MESH, "^launch$"]},
        ]
    }
)
ONLY_MESH = json.dumps({"rules": [{"selector": {"matchLabels": {"team": "mesh"}}, "allowedAnnotationKeyExprs": ["x"]}]})
WHERE = "ConfigMap kruise-configuration, key SidecarSet_PatchPodMetadata_WhiteList"
PATCH = "sidecarSet patch metadata annotation"
NOT_ALLOWED = f"{PATCH}(mesh.example/a) is not allowed by {WHERE}"


@pytest.mark.behaviour("SS-31", "MGR-80")
@pytest.mark.parametrize(
    ("text", "labels", "keys", "gate", "message"),
    [
        (LIST, {}, ["oom-score"], False, ""),
        (LIST, {}, ["mesh.example/a"], False, NOT_ALLOWED),
        (LIST, {"team": "mesh"}, ["oom-score", "mesh.example/a", "launch"], False, ""),
        # A rule applies to the set, so the gate does not count.
        (LIST, {}, ["mesh.example/a"], True, NOT_ALLOWED),
        (None, {}, ["a"], False, f"SidecarSet patch metadata whitelist not found: {WHERE}"),
        ("", {}, ["a"], False, f"SidecarSet patch metadata whitelist not found: {WHERE}"),
        (None, {}, ["a"], True, ""),
        (ONLY_MESH, {}, ["a"], False, f"{PATCH} is not allowed: no rule for this set in {WHERE}"),
        (ONLY_MESH, {}, ["a"], True, ""),
        ("{}", {}, ["a"], True, ""),
        # Without annotations the whitelist is not read.
        ("not json", {}, [], False, ""),
        # Patterns are searched for, not matched from the beginning.
        ('{"rules":[{"allowedAnnotationKeyExprs":["oom"]}]}', {}, ["my-oom-score"], False, ""),
        # Keys match regardless of case, as in Go.
        ('{"Rules":[{"AllowedAnnotationKeyExprs":["^a$"],"Selector":null}]}', {}, ["a"], False, ""),
    ],
)
def test_only_whitelisted_metadata_may_be_patched(
    text: str | None, labels: dict[str, str], keys: list[str], gate: bool, message: str
) -> None:
    assert refusal(text, labels, keys, defaults_allowed=gate) == message


@pytest.mark.behaviour("SS-31", "SS-122")
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not JSON: "),
        ("[]", 'expected an object {"rules": [...]}'),
        ('{"rules": {}}', 'expected an object {"rules": [...]}'),
        ('{"rules": [1]}', 'expected an object {"rules": [...]}'),
        ('{"rules": [{"allowedAnnotationKeyExprs": "a"}]}', "rules[0]: the selector must be an object"),
        ('{"rules": [{"selector": [], "allowedAnnotationKeyExprs": []}]}', "rules[0]: the selector must be an object"),
        ('{"rules": [{"allowedAnnotationKeyExprs": [1]}]}', "rules[0]: allowedAnnotationKeyExprs: 1 is not a string"),
        ('{"rules": [{"allowedAnnotationKeyExprs": ["("]}]}', "rules[0]: error parsing regexp: "),
        ('{"rules": [{"allowedAnnotationKeyExprs": ["(?=a)"]}]}', "rules[0]: error parsing regexp: "),
        ('{"rules": [{"selector": {"matchExpressions": [{"key": "a", "operator": "Bad"}]}}]}', "rules[0]: "),
    ],
)
def test_an_unreadable_whitelist_refuses_with_the_position(text: str, message: str) -> None:
    found = refusal(text, {}, ["a"], defaults_allowed=True)
    assert found.startswith(f"{WHERE}: ")
    assert message in found


def patching(version: str, **metadata: Any) -> dict[str, Any]:
    patches = [{"annotations": {"launch": "Ordered"}, "patchPolicy": "Retain"}]
    return sidecar_set(version=version, metadata=metadata, patchPodMetadata=patches)


@pytest.mark.behaviour("SS-31", "SS-27")
@pytest.mark.parametrize("version", ["apps.kruise.io/v1alpha1", "apps.kruise.io/v1beta1"])
def test_a_set_is_checked_against_the_whitelist_with_its_labels(version: str) -> None:
    lookups = Lookups(whitelist=LIST, defaults_allowed=False)
    assert write(patching(version, labels={"team": "mesh"}), lookups=lookups).obj is not None
    assert write(patching(version), lookups=lookups).message == (
        f"spec.patchPodMetadata: Forbidden: sidecarSet patch metadata annotation(launch) is not allowed by {WHERE}"
    )


# ---- fields without effect

TRANSFER = "spec.containers[0].transferEnv[0]"
HOT = {"upgradeType": "HotUpgrade", "hotUpgradeEmptyImage": "e:1"}


def with_container(**fields: Any) -> dict[str, Any]:
    return sidecar_set(containers=[{"name": "c", "image": "a:1", **fields}])


@pytest.mark.behaviour("SS-135")
@pytest.mark.parametrize(
    ("obj", "said"),
    [
        (with_container(), ()),
        (
            with_container(transferEnv=[{"envName": "A"}]),
            (f"{TRANSFER}: names no source container, so nothing is copied; set sourceContainerName",),
        ),
        (
            with_container(transferEnv=[{"sourceContainerName": "main"}]),
            (f"{TRANSFER}: names no variable, so nothing is copied; set envName or envNames",),
        ),
        (with_container(transferEnv=[{"sourceContainerName": "main", "envName": "A"}]), ()),
        (
            with_container(image="e:1", upgradeStrategy=HOT),
            ("spec.containers[0].image: equals hotUpgradeEmptyImage: running Pods are not upgraded to it",),
        ),
        (with_container(upgradeStrategy=HOT), ()),
        (sidecar_set(updateStrategy={"type": "RollingUpdate", "partition": "100%"}), ()),
        (
            sidecar_set(updateStrategy={"type": "RollingUpdate", "partition": "150%"}),
            ('spec.updateStrategy.partition: "150%" keeps all Pods at the old revision, as 100% does',),
        ),
    ],
)
def test_a_field_without_effect_gets_a_warning(obj: dict[str, Any], said: tuple[str, ...]) -> None:
    written = write(obj)
    assert written.message == ""
    assert written.warnings == said


CHANGED = "running Pods cannot take this change in place; only new Pods get it"
UNTOUCHED = "running Pods are not updated for this change; only new Pods get it"


@pytest.mark.behaviour("SS-135")
@pytest.mark.parametrize(
    ("fields", "spec", "said"),
    [
        ({"image": "a:2"}, {}, ()),
        ({}, {"updateStrategy": {"paused": True}}, ()),
        ({"env": [{"name": "A", "value": "1"}]}, {}, (f"spec.containers[c].env: {CHANGED}",)),
        ({"env": [{"name": "A", "value": "1"}]}, {"updateStrategy": {"type": "NotUpdate"}}, ()),
        ({}, {"imagePullSecrets": [{"name": "p"}]}, (f"spec.imagePullSecrets: {UNTOUCHED}",)),
        ({"image": "a:2"}, {"imagePullSecrets": [{"name": "p"}]}, ()),
        ({}, {"initContainers": [{"name": "i", "image": "i"}]}, (f"spec.initContainers: {UNTOUCHED}",)),
    ],
)
def test_a_change_that_reaches_no_running_pod_gets_a_warning(
    fields: dict[str, Any], spec: dict[str, Any], said: tuple[str, ...]
) -> None:
    older = sidecar_set(containers=[{"name": "c", "image": "a:1"}])
    written = write(sidecar_set(containers=[{"name": "c", "image": "a:1", **fields}], **spec), older)
    assert written.message == ""
    assert written.warnings == said


@pytest.mark.behaviour("SS-135")
def test_a_restart_policy_without_effect_gets_a_warning() -> None:
    written = write(sidecar_set(initContainers=[{"name": "i", "image": "i", "restartPolicy": "OnFailure"}]))
    text = '"OnFailure" does not make it a sidecar: it only runs before the other containers'
    assert written.warnings == (f"spec.initContainers[0].restartPolicy: {text}",)


@pytest.mark.behaviour("SS-21")
def test_an_invalid_restart_policy_is_refused() -> None:
    written = write(sidecar_set(initContainers=[{"name": "i", "image": "i", "restartPolicy": "Sometimes"}]))
    assert 'spec.initContainers[0].restartPolicy: Unsupported value: "Sometimes": supported' in written.message
