"""A platform engineer distributes one ConfigMap or Secret to many namespaces (U-85)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.scenarios.world import World, eventually

DISTRIBUTION = """
apiVersion: apps.kruise.io/{version}
kind: ResourceDistribution
metadata: {{name: $ns, labels: {{team: $ns}}}}
spec:
  resource:
    apiVersion: v1
    kind: {kind}
    metadata: {{name: shared}}
    {data}
  targets:
    {selector}: {{matchLabels: {{team: $ns}}}}
    includedNamespaces: {{list: [{{name: $ns-later}}]}}
    excludedNamespaces: {{list: [{{name: $ns-out}}]}}
"""
CONFIG_MAP = DISTRIBUTION.format(
    version="v1beta1", kind="ConfigMap", data='data: {level: "info"}', selector="namespaceSelector"
)
SECRET = DISTRIBUTION.format(
    version="v1alpha1", kind="Secret", data='stringData: {key: "s3cret"}', selector="namespaceLabelSelector"
)


@pytest.fixture
def platform(world: World) -> Iterator[World]:
    """Create two more namespaces of the team; what was distributed is deleted afterwards."""
    for suffix in ("two", "out"):
        namespace(world, suffix)
    yield world
    world.kubectl("delete", "resourcedistribution", world.namespace, "--ignore-not-found", check=False)
    for suffix in ("two", "out", "later"):
        world.kubectl(
            "delete", "namespace", f"{world.namespace}-{suffix}", "--ignore-not-found", "--wait=false", check=False
        )


def namespace(world: World, suffix: str) -> None:
    name = f"{world.namespace}-{suffix}"
    manifest = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": name, "labels": {"team": world.namespace}},
    }
    world.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(manifest))


def content(world: World, suffix: str, kind: str = "configmap") -> dict[str, Any] | None:
    found = world.list(kind, "--field-selector=metadata.name=shared", namespace=f"{world.namespace}{suffix}")
    return found[0].get("data", {}) if found else None


def counts(world: World) -> list[str]:
    status = world.get("resourcedistribution", world.namespace).get("status", {})
    return [str(status.get(name, 0)) for name in ("desired", "succeeded", "failed")]


@pytest.mark.behaviour("RD-15", "RD-20", "RD-22", "RD-30", "RD-37", "RD-33", "RD-40")
def test_a_config_map_is_synced_to_its_targets(platform: World) -> None:
    platform.apply(CONFIG_MAP)
    eventually(lambda: counts(platform) == ["3", "2", "1"], "two of three namespaces have it")
    assert content(platform, "") == content(platform, "-two") == {"level": "info"}
    assert content(platform, "-out") is None
    namespace(platform, "later")
    eventually(lambda: content(platform, "-later") == {"level": "info"}, "the new namespace has it")
    platform.apply(CONFIG_MAP.replace("info", "debug"))
    eventually(lambda: content(platform, "-two") == {"level": "debug"}, "the change is copied")
    change = ["patch", "configmap", "shared", "-n", f"{platform.namespace}-two", "--type=merge", "-p"]
    platform.kubectl(*change, '{"data": {"level": "mine"}}')
    eventually(lambda: content(platform, "-two") == {"level": "debug"}, "the drift is reverted")
    platform.kubectl("label", "namespace", f"{platform.namespace}-two", "team-")
    eventually(lambda: content(platform, "-two") is None, "the removed namespace no longer has it")
    platform.kubectl("delete", "resourcedistribution", platform.namespace)
    eventually(lambda: content(platform, "") is None, "the copies are deleted with their object")


@pytest.mark.behaviour("RD-1", "RD-33", "RD-72")
def test_a_foreign_secret_is_reported_as_a_conflict(platform: World) -> None:
    platform.apply("{apiVersion: v1, kind: Secret, metadata: {name: shared}, stringData: {key: theirs}}")
    theirs = content(platform, "", "secret")
    platform.apply(SECRET)
    eventually(lambda: counts(platform) == ["3", "1", "2"], "one of three namespaces has it")
    assert content(platform, "", "secret") == theirs
    conditions = platform.get("resourcedistribution", platform.namespace)["status"]["conditions"]
    conflict = next(one for one in conditions if one["type"] == "ConflictOccurred")
    assert (conflict["status"], conflict["failedNamespaces"]) == ("True", [platform.namespace])
    assert "s3cret" not in str(conditions)


@pytest.mark.behaviour("RD-10", "RD-11", "RD-13", "RD-14", "RD-16")
def test_invalid_specs_are_refused_by_field(platform: World) -> None:
    for wrong, said in (
        (
            CONFIG_MAP.replace("kind: ConfigMap", "kind: Pod"),
            "spec.resource: Invalid value: Pod: unknown or unsupported",
        ),
        (CONFIG_MAP.replace("$ns-out", "$ns-later"), "is in both IncludedNamespaces.List and ExcludedNamespaces.List"),
        (CONFIG_MAP.replace('level: "info"', "level: 1"), "spec.resource is invalid"),
        (CONFIG_MAP.replace("$ns-out", "Out_"), 'spec.targets.excludedNamespaces: Invalid value: "Out_"'),
    ):
        refused = platform.apply(wrong, check=False)
        assert refused.returncode != 0
        assert said in refused.stderr
    platform.apply(CONFIG_MAP)
    refused = platform.apply(CONFIG_MAP.replace("name: shared", "name: other"), check=False)
    assert "resource apiVersion, kind, and name are immutable" in refused.stderr
