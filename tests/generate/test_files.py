"""Outdated generated files are found. `make check-generated` checks those of the repository."""

from functools import cache
from pathlib import Path

import pytest
import yaml

from app.generate import __main__ as files
from app.manager.rbac import all_rules
from app.manager.webhook_handlers import WEBHOOKS

ROOT = Path(__file__).parent.parent.parent


def test_drift_is_found_and_repaired(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "files", cache(files.files))
    arguments = ["--root", str(tmp_path)]
    assert files.main([*arguments, "--check"]) == 1
    assert "deploy/rbac.yaml: missing; run `make generate`" in capsys.readouterr().err
    assert files.main(arguments) == 0
    (tmp_path / "deploy/rbac.yaml").write_text("other", "utf-8")
    (tmp_path / "deploy/crds/left-over.yaml").write_text("", "utf-8")
    assert files.main([*arguments, "--check"]) == 1
    assert capsys.readouterr().err.splitlines() == [
        "deploy/rbac.yaml: differs; run `make generate`",
        "deploy/crds/left-over.yaml: no longer generated; run `make generate`",
    ]
    files.main(arguments)
    assert not (tmp_path / "deploy/crds/left-over.yaml").exists()


@pytest.mark.behaviour("MGR-125")
def test_roles_have_no_wildcards_and_secrets_only_in_our_namespace() -> None:
    documents = list(yaml.safe_load_all((ROOT / "deploy/rbac.yaml").read_text("utf-8")))
    rules = [rule for document in documents for rule in document.get("rules", ())]
    assert not any("*" in rule[field] for rule in rules for field in ("apiGroups", "resources", "verbs"))
    cluster = next(document for document in documents if document["kind"] == "ClusterRole")
    assert not any("secrets" in rule["resources"] for rule in cluster["rules"])
    named = [rule for rule in rules if "secrets" in rule["resources"] and "get" in rule["verbs"]]
    assert [rule["resourceNames"] for rule in named] == [["kruise-webhook-certs"]]
    granted = {(verb, resource) for rule in rules for verb in rule["verbs"] for resource in rule["resources"]}
    of_others = {("patch", "nodes"), ("delete", "nodes"), ("create", "clusterroles"), ("create", "pods/exec")}
    assert granted.isdisjoint({*of_others, ("delete", "sidecarsets")})


@pytest.mark.behaviour("SS-109")
def test_every_declared_permission_is_granted() -> None:
    declared = {rule for webhook in WEBHOOKS for rule in webhook.permissions}
    assert declared <= set(all_rules())
