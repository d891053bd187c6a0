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


@pytest.mark.behaviour("SS-31", "MGR-80")
@pytest.mark.parametrize(
    ("text", "labels", "keys", "gate", "message"),
    [
        (LIST, {}, ["oom-score"], False, ""),
        (LIST, {}, ["mesh.example/a"], False, "sidecarSet patch metadata annotation(mesh.example/a) is not allowed "
                                              f"by {WHERE}"),
        (LIST, {"team": "mesh"}, ["oom-score", "mesh.example/a", "launch"], False, ""),
        # A rule applies to the set, so the gate does not count.
        (LIST, {}, ["mesh.example/a"], True, "sidecarSet patch metadata annotation(mesh.example/a) is not allowed "
                                             f"by {WHERE}"),
        (None, {}, ["a"], False, f"SidecarSet patch metadata whitelist not found: {WHERE}"),
        ("", {}, ["a"], False, f"SidecarSet patch metadata whitelist not found: {WHERE}"),
        (None, {}, ["a"], True, ""),
        (ONLY_MESH, {}, ["a"], False, "sidecarSet patch metadata annotation is not allowed: no rule for this set in "
                                      f"{WHERE}"),
        (ONLY_MESH, {}, ["a"], True, ""),
        ("{}", {}, ["a"], True, ""),
        # Without annotations the whitelist is not read.
        ("not json", {}, [], False, ""),
        # Patterns are searched for, not matched from the beginning.
        ('{"rules":[{"allowedAnnotationKeyExprs":["oom"]}]}', {}, ["my-oom-score"], False, ""),
        # Keys match regardless of case, as in Go.
        ('{"Rules":[{"AllowedAnnotationKeyExprs":["^a$"],"Selector":null}]}', {}, ["a"], False, ""),
    ],
)  # fmt: skip
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
        ('{"rules": [{"allowedAnnotationKeyExprs": "a"}]}', "rules[0]: expected an object selector"),
        ('{"rules": [{"selector": [], "allowedAnnotationKeyExprs": []}]}', "rules[0]: expected an object selector"),
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
