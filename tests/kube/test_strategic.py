"""Strategic merge patches: tables of object, patch and result."""

from typing import Any

import pytest

from app.kube.patches import PatchError, strategic_merge
from app.sandbox.apiserver.schemas import kind_field


def containers(*items: dict[str, Any]) -> dict[str, Any]:
    return {"spec": {"containers": list(items)}}


A, B, C = ({"name": name, "image": f"{name}:1"} for name in "abc")


@pytest.mark.parametrize(
    ("target", "patch", "expected"),
    [
        pytest.param(
            containers(A, B),
            containers({"name": "b", "image": "b:2"}),
            containers(A, {"name": "b", "image": "b:2"}),
            id="item-by-key",
        ),
        pytest.param(containers(A), containers(B), containers(B, A), id="new-item-first"),
        pytest.param(containers(A, B), containers({"name": "a", "$patch": "delete"}), containers(B), id="delete-item"),
        pytest.param(containers(A, B), containers({"$patch": "replace"}, C), containers(C), id="replace-list"),
        pytest.param(
            containers(A, B),
            {"spec": {"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}]}},
            containers(B, A),
            id="order",
        ),
        pytest.param(
            containers({**A, "env": [{"name": "X", "value": "1"}]}),
            containers({"name": "a", "env": [{"name": "X", "value": "2"}, {"name": "Y", "value": "3"}]}),
            containers({**A, "env": [{"name": "X", "value": "2"}, {"name": "Y", "value": "3"}]}),
            id="nested-list",
        ),
        pytest.param(
            containers({**A, "command": ["x", "y"]}),
            containers({"name": "a", "command": ["z"]}),
            containers({**A, "command": ["z"]}),
            id="atomic-list",
        ),
        pytest.param(
            {"metadata": {"labels": {"a": "1", "b": "2"}}},
            {"metadata": {"labels": {"a": None, "c": "3"}}},
            {"metadata": {"labels": {"b": "2", "c": "3"}}},
            id="null-removes",
        ),
        pytest.param(
            {"metadata": {"finalizers": ["x/a", "x/b"]}},
            {"metadata": {"$deleteFromPrimitiveList/finalizers": ["x/a"], "finalizers": ["x/c"]}},
            {"metadata": {"finalizers": ["x/c", "x/b"]}},
            id="texts",
        ),
        pytest.param(
            {"spec": {"securityContext": {"runAsUser": 1, "fsGroup": 2}}},
            {"spec": {"securityContext": {"$patch": "replace", "runAsUser": 3}}},
            {"spec": {"securityContext": {"runAsUser": 3}}},
            id="replace-object",
        ),
        pytest.param(
            {"spec": {"hostname": "a"}},
            {"spec": {"securityContext": {"$patch": "replace", "runAsUser": 3}}},
            {"spec": {"hostname": "a"}},
            id="replace-missing-object",
        ),
        pytest.param(
            {"spec": {"volumes": [{"name": "v", "emptyDir": {}}]}},
            {"spec": {"volumes": [{"name": "v", "$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/x"}}]}},
            {"spec": {"volumes": [{"name": "v", "hostPath": {"path": "/x"}}]}},
            id="retain-keys",
        ),
    ],
)
def test_a_strategic_merge_follows_the_types(target: Any, patch: Any, expected: Any) -> None:
    assert strategic_merge(target, patch, kind_field("v1", "Pod")) == expected


def test_neither_document_is_modified() -> None:
    target, patch = containers(A), containers({"name": "a", "image": "a:2"})
    strategic_merge(target, patch, kind_field("v1", "Pod"))
    assert (target, patch) == (containers(A), containers({"name": "a", "image": "a:2"}))


def test_an_item_needs_its_key() -> None:
    with pytest.raises(PatchError, match="does not contain declared merge key: name"):
        strategic_merge(containers(A), containers({"image": "x"}), kind_field("v1", "Pod"))
