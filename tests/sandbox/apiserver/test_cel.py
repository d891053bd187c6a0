"""Match conditions: evaluation by the library, and the optional selections that are rewritten for it."""

from typing import Any

import pytest

from app.sandbox.apiserver.cel import CelError, compiled

LABELED = {"metadata": {"labels": {"app": "web", "a/b": "1"}}}


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("!has(object.metadata.annotations)", True),
        ("'a/b' in object.metadata.labels", True),
        ("object.metadata.labels[?'a/b'] != oldObject.metadata[?'labels'][?'a/b']", True),
        ("object.metadata.labels[?'none'] == oldObject.metadata[?'labels'][?'none']", True),
        ("object.?metadata.?labels.?app.orValue('') == 'web'", True),
        ("object.?spec.replicas.orValue(0) == 0", True),
        ("object.metadata.?annotations.hasValue()", False),
        ("request.operation == 'CREATE' || object.metadata.labels[?'x'].hasValue()", True),
        ("object.metadata.labels.exists(key, key.startsWith('a'))", True),
    ],
)
def test_webhook_expressions_are_evaluated(expression: str, expected: Any) -> None:
    variables = {"object": LABELED, "oldObject": {"metadata": {}}, "request": {"operation": "CREATE"}}
    assert compiled(expression).evaluate(variables) is expected


def test_the_error_names_a_missing_key() -> None:
    with pytest.raises(CelError, match=r"expression 'object\.none\.x' resulted in error: no such key: none"):
        compiled("object.none.x").evaluate({"object": {}})


def test_invalid_expressions_are_refused() -> None:
    with pytest.raises(CelError, match="compilation failed"):
        compiled("1 +")


@pytest.mark.parametrize(
    ("expression", "parts"),
    [
        ("object.metadata.name == 'a'", {"object": {"metadata": {"name": {}}}}),
        ("object.metadata.name.startsWith('a')", {"object": {"metadata": {"name": {}}}}),
        ("object.metadata.name == 'a' || has(object.metadata)", {"object": {"metadata": {}}}),
        ("has(object.metadata) && object.metadata.name == 'a'", {"object": {"metadata": {}}}),
        ("object.metadata.name == 'a' && object != oldObject", {"object": {}, "oldObject": {}}),
        ("object['metadata'].name == 'a'", {"object": {}}),
        ("object.spec.containers.all(c, c.object != 'a')", {"object": {"spec": {"containers": {}}}, "c": {}}),
        ("'object.spec' == object.data.k", {"object": {"data": {"k": {}}}}),
        ("object.?metadata.?labels.?app.orValue('') == 'web'", {"object": {}}),
    ],
)
def test_variables_are_passed_to_an_expression(expression: str, parts: dict[str, Any]) -> None:
    assert compiled(expression).parts == parts
