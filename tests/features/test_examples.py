"""Every kind has an example that its schema and its webhooks accept without warnings."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml

from app.admission.registry import Route
from app.api import structural
from app.api.kind import KindDefinition
from app.kube.clock import SystemClock
from app.manager.apidocs import example, example_text
from app.manager.features import features
from app.manager.gates import GATES, parse_gates
from app.manager.standalone import Standalone
from tests.admission.writing import written

KINDS = [kind for declared in features() for kind in declared.kinds]
ALL_ON = ",".join(f"{name}=true" for name in GATES)


GUIDES = Path(__file__).resolve().parents[2] / "docs" / "guides" / "examples"


def of_guides(kind: KindDefinition) -> dict[str, Any]:
    found = yaml.safe_load_all((GUIDES / f"{kind.singular}.yaml").read_text("utf-8"))
    ours: dict[str, Any] = next(one for one in found if one["apiVersion"].startswith(kind.group))
    assert ours["apiVersion"] == f"{kind.group}/{kind.hub.name}"
    kind.hub.model.model_validate(ours)
    return ours


@cache
def routes() -> list[Route]:
    registry = Standalone(None, parse_gates(ALL_ON), SystemClock(), Random(1)).registry
    return [registry.routes[webhook.path] for webhook in registry.webhooks]


@pytest.mark.parametrize("read", [example, of_guides])
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.kind)
def test_an_example_is_accepted_without_a_warning(
    kind: KindDefinition, read: Callable[[KindDefinition], dict[str, Any]]
) -> None:
    obj = read(kind)
    assert (obj["kind"], obj["metadata"].get("namespace")) == (kind.kind, None)
    version = kind.version(obj["apiVersion"])
    assert version is not None
    assert structural.unknown_fields(version.schema, obj) == []
    handlers = {
        id(handler): handler
        for route in routes()
        for (_, group, _, plural, subresource), handler in route.handlers.items()
        if (group, plural, subresource) == (kind.group, kind.plural, "")
    }
    namespaced = {**obj, "metadata": {**obj["metadata"], **({"namespace": "shop"} if kind.namespaced else {})}}
    found = written(kind, list(handlers.values()), namespaced)
    if kind.kind == "ContainerRecreateRequest":
        # There are no Pods without a cluster.
        assert found.message == 'spec.podName: Not found: "web-0": there is no such Pod in namespace shop'
    else:
        assert (found.message, found.warnings) == ("", ())


def test_examples_are_formatted_as_yaml() -> None:
    assert all("\t" not in example_text(kind) and example_text(kind).endswith("\n") for kind in KINDS)
