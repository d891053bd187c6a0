import json
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.pods import template_text as printing
from app.pods.revisions import (
    MAX_PASSED_OVER,
    Create,
    Revision,
    after_clash,
    plan_revision,
    revision_hash,
    template_hash,
)
from app.pods.template_text import NEWEST, OPENKRUISE, TextError, template_text
from tests.kube.recorded import cases, for_each

RECORDED = Path(__file__).parent.parent / "data" / "openkruise" / "11-daemonset-jobs.json"
LEAVES = st.none() | st.booleans() | st.integers() | st.text()
ANYTHING = st.recursive(LEAVES, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20)


def data_of(template: Any) -> bytes:
    return orjson.dumps({"spec": {"template": template}})


def with_container(**fields: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "main", "image": "nginx:1", **fields}]}}


@pytest.mark.behaviour("DS-53")
def test_openkruise_revisions_have_the_same_hash() -> None:
    items = json.loads(RECORDED.read_text())["items"]
    revisions = [one for one in items if one["kind"] == "ControllerRevision"]
    found = {one["metadata"]["name"]: f"ds-{template_hash(orjson.dumps(one['data']))}" for one in revisions}
    assert found == {"ds-578fd4b58b": "ds-578fd4b58b", "ds-68f5c79444": "ds-68f5c79444"}


@pytest.mark.behaviour("DS-53", "PM-90")
@for_each(cases("templates"))
def test_hashes_are_those_of_kubernetes(template: Any, hashes: list[str]) -> None:
    data = data_of(template)
    assert [template_hash(data, release=NEWEST), template_hash(data, 1, release=NEWEST)] == hashes


@pytest.mark.behaviour("DS-53")
@pytest.mark.parametrize("fields", [
    {"lifecycle": {"stopSignal": "SIGINT"}},
    {"restartPolicyRules": [{"action": "Restart"}]},
    {"ofNoRelease": True},
    {"env": [{"name": "a", "valueFrom": {"fileKeyRef": {"volumeName": "v", "path": "p", "key": "k"}}}]},
])  # fmt: skip
def test_fields_unknown_to_openkruise_change_the_hash(fields: dict[str, Any]) -> None:
    """OpenKruise drops these fields. Here they reach the Pods, so the revisions need distinct names."""
    plain = template_hash(data_of(with_container()))
    assert template_hash(data_of(with_container(**fields))) != plain
    assert template_hash(data_of(with_container(**dict.fromkeys(fields)))) == plain


def test_older_releases_lack_newer_fields() -> None:
    older, newer = template_text(with_container()), template_text(with_container(), NEWEST)
    assert "RestartPolicyRules:" not in older
    assert "RestartPolicyRules:([]v1.ContainerRestartRule)<nil>" in newer
    assert older == template_text(with_container(), OPENKRUISE)


@pytest.mark.behaviour("DS-53")
@pytest.mark.parametrize("template", [
    {"spec": {"containers": "all"}},
    {"spec": {"containers": [{"stdin": "yes"}]}},
    {"spec": {"containers": [{"resources": {"limits": {"cpu": "lots"}}}]}},
    {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}},
    {"metadata": {"managedFields": [{"fieldsV1": {}}]}},
    {"spec": {"tolerations": [{"operator": "Exists"}] * 10_000}},
])  # fmt: skip
def test_unreadable_or_long_templates_have_their_own_hash(template: Any) -> None:
    with pytest.raises(TextError):
        template_text(template)
    assert template_hash(data_of(template), 2) == revision_hash(data_of(template), 2)


def test_hashing_stops_at_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(printing, "LIMIT", 5_000)
    template_text(with_container())
    with pytest.raises(TextError, match="longer than 5000 characters"):
        template_text({"spec": {"containers": [{"name": f"c{number}"} for number in range(4)]}})


@pytest.mark.behaviour("DS-53")
@given(ANYTHING)
def test_any_recorded_data_has_a_hash(template: Any) -> None:
    assert template_hash(dumped(template))
    assert template_hash(dumped(template)) == template_hash(dumped(template))


def dumped(template: Any) -> bytes:
    return json.dumps({"spec": {"template": template}}).encode()


@pytest.mark.parametrize("data", [b"", b"null", b'{"spec":1}', b"[" * 2000])
def test_data_without_a_template_has_a_hash(data: bytes) -> None:
    assert template_hash(data) == revision_hash(data, 0)


@pytest.mark.behaviour("PM-90")
def test_after_a_collision_the_count_is_hashed() -> None:
    data = data_of(with_container())
    first = plan_revision("ds", data, [], 0, template_hash)
    assert isinstance(first, Create)
    assert first.name == f"ds-{template_hash(data)}"
    second = after_clash("ds", first, Revision(first.name, 1, b"{}"), template_hash)
    assert isinstance(second, Create)
    assert second.name == f"ds-{template_hash(data, 1)}" != first.name
    assert second.collision_count == 1


@pytest.mark.behaviour("PM-90")
@pytest.mark.parametrize(("taken", "count"), [(0, 0), (1, 1), (3, 3), (MAX_PASSED_OVER + 5, MAX_PASSED_OVER - 1)])
def test_names_of_own_revisions_are_skipped(taken: int, count: int) -> None:
    """Beyond a limit, the API server is asked about each further name."""
    data = data_of(with_container(args=["a", "b"]))
    known = [Revision(f"ds-{template_hash(data, number)}", number + 1, b"{}") for number in range(taken)]
    plan = plan_revision("ds", data, known, 0, template_hash)
    assert isinstance(plan, Create)
    assert (plan.name, plan.collision_count) == (f"ds-{template_hash(data, count)}", count)
