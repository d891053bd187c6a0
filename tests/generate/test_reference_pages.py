"""The page of a kind matches its models and webhooks."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.api.kind import KindDefinition
from app.generate import reference_pages as kindpages
from app.generate.reference_pages import kinds_page, webhooks_page
from app.manager.features import kinds
from app.manager.webhook_handlers import WEBHOOKS

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("kind", kinds(), ids=lambda kind: kind.kind)
def test_the_page_names_every_field_of_every_version(kind: KindDefinition) -> None:
    text = (ROOT / "docs" / "reference" / "kinds" / f"{kind.singular}.md").read_text("utf-8")
    for version in kind.versions:
        for name in version.schema["properties"]["spec"].get("properties") or {}:
            assert f"`spec.{name}`" in text
    assert f"[{kind.kind}](kinds/{kind.singular}.md)" in kinds_page([kind])


def test_the_page_of_webhooks_has_a_row_for_each() -> None:
    lines = webhooks_page(WEBHOOKS).splitlines()
    for webhook in WEBHOOKS:
        (row,) = [line for line in lines if f"| {webhook.name} |" in line]
        assert all(one.name in row for one in webhook.match_conditions)
        assert webhook.summary.rstrip(".") in row


def test_rules_follow_the_description_of_a_field() -> None:
    (clone_set,) = [kind for kind in kinds() if kind.kind == "CloneSet"]
    page = kindpages.page(clone_set)
    assert "; versions: v1beta1 (stored), v1alpha1. [Example](../../guides/examples/cloneset.yaml).\n" in page
    assert "- `spec.selector` (LabelSelector; required): " in page
    assert "- `status.conditions` ([]Condition): Progressing, FailedScale or FailedUpdate.\n" in page


def test_fields_of_the_older_version_refer_to_those_of_the_stored_one() -> None:
    (clone_set,) = [kind for kind in kinds() if kind.kind == "CloneSet"]
    older = kindpages.page(clone_set).partition("## In v1alpha1\n")[2].splitlines()
    assert "- `spec.updateStrategy.maxSurge` instead of `spec.updateStrategy.rollingUpdate.maxSurge`" in older
    assert [line for line in older if line.startswith("- `spec.updateStrategy.type` (string): ReCreate (the default)")]
    (only,) = [line for line in older if line.startswith("- Only in v1beta1: ")]
    assert "`spec.updateStrategy.rollingUpdate.podUpdatePolicy`" in only
    assert "maxSurge" not in only


def test_fields_are_described_once() -> None:
    (united,) = [kind for kind in kinds() if kind.kind == "UnitedDeployment"]
    page = kindpages.page(united, others=kinds())
    assert "Fields as in [CloneSet](cloneset.md#fields)." in page
    assert "`spec.template.cloneSetTemplate.spec.updateStrategy`" not in page
    assert "`spec.selector.matchLabels`" not in page
    (stateful,) = [kind for kind in kinds() if kind.kind == "StatefulSet"]
    shared = "Hooks in the lifecycle of a Pod. Fields as in [CloneSet](cloneset.md#fields)."
    assert shared in kindpages.page(stateful, others=kinds())
    assert "`spec.template.deploymentTemplate.spec.strategy`" not in page
    assert "- `spec.template.cloneSetTemplate.spec`: see [CloneSet](cloneset.md#in-v1alpha1)." in page
