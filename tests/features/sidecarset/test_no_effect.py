"""Warnings about fields of a SidecarSet without effect, through its webhook."""

from __future__ import annotations

from typing import Any

import pytest

from tests.features.writing import sidecar_set, write

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
def test_a_changed_restart_policy_of_an_init_container_gets_a_warning() -> None:
    written = write(sidecar_set(initContainers=[{"name": "i", "image": "i", "restartPolicy": "OnFailure"}]))
    text = '"OnFailure" does not make it a sidecar: it only runs before the other containers'
    assert written.warnings == (f"spec.initContainers[0].restartPolicy: {text}",)


@pytest.mark.behaviour("SS-21")
def test_an_invalid_restart_policy_is_refused() -> None:
    written = write(sidecar_set(initContainers=[{"name": "i", "image": "i", "restartPolicy": "Sometimes"}]))
    assert 'spec.initContainers[0].restartPolicy: Unsupported value: "Sometimes": supported' in written.message
