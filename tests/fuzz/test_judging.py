"""Any value in any field is admitted or rejected with a 4xx that names the field; no exception is raised."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

import pytest

from app.admission.registry import Registry
from app.admission.review import Refusal, answer, read_review
from app.kube.admission import Allowed, Decision, Patched
from tests.fuzz import objects
from tests.fuzz.objects import Hostile, Target
from tests.fuzz.service import decided, standalone_service
from tests.kit import virtualtime
from tests.nightly import NIGHTLY


async def decide(registry: Registry, path: str, body: bytes) -> Decision | Refusal:
    """Return the answer to a request body. Raises any error that the service would treat as its own failure."""
    review = read_review(body)
    if isinstance(review, Refusal):
        return review
    decision = await decided(registry.routes[path].handler_for(review), review)
    answered = answer(review.uid, decision)
    assert isinstance(decision, Patched) or len(answered) < 200_000, f"an answer of {len(answered)} bytes"
    return decision


def problem(decision: Decision | Refusal, *named: str) -> str:
    """Return the problem of an answer: a rejection must be a 4xx with a message that contains one of ``named``."""
    if isinstance(decision, Allowed | Patched):
        return ""
    if not 400 <= decision.code < 500:
        return f"code {decision.code}: {decision.message[:200]}"
    if not decision.message:
        return "refused without a message"
    if named and not any(name in decision.message for name in named):
        return f"says none of {', '.join(named)}: {decision.message[:200]}"
    return ""


TARGETS = pytest.mark.parametrize("target", objects.TARGETS, ids=lambda t: f"{t.path[1:]} {t.make()['apiVersion']}")
#: The share of combinations of a field and a value that are tried.
ONE_IN = 1 if NIGHTLY else 39


def fields_of(made: Hostile) -> list[str]:
    """Return the names that a message may use for the changed field: its own, or that of a parent."""
    path = made.what.removeprefix("no ").split(" = ")[0]
    steps = [step.partition("[")[0] for step in path.split(".")]
    if steps == ["spec"]:
        return ["spec", "container"]  # without a container, a resources policy has nothing to count
    if "volumeClaimTemplates" in steps:
        return [*steps[1:], "persistentVolumeClaim"]  # volumes are built from claims
    if "volumes" in steps:
        return [*steps[1:], "volumeMounts", "volumeDevices"]  # they refer to a volume by name
    if path == "metadata.name":
        return ["name", "already exist"]  # the stored SidecarSet has another name
    # The kind and version of an object are reported together.
    return ["request.object"] if steps[0] in ("apiVersion", "kind") else steps[1:] or steps


@pytest.fixture(scope="module")
def registry() -> Registry:
    return virtualtime.run(standalone_service(objects.sidecar_set())).registry


async def problems(registry: Registry, target: Target, made: Iterable[Hostile], *, old: bool = False) -> dict[str, str]:
    """Return the problems of the answers by how the objects were made. The objects are sent as ``object``, or with
    ``old`` as the ``oldObject`` of a valid one."""
    found = {}
    for one in made:
        if old:
            document = objects.review(target, target.make(), operation="UPDATE", old=one.object)
        else:
            document = objects.review(target, one.object)
        try:
            decision = await decide(registry, target.path, objects.encode(document))
        except Exception as error:  # noqa: BLE001 - reported as a finding
            found[one.what] = f"raises {type(error).__name__}: {str(error)[:200]}"
            continue
        if said := problem(decision, *([] if old else fields_of(one))):
            found[one.what] = said
    return found


@pytest.mark.behaviour("MGR-45")
@TARGETS
def test_a_value_of_any_type_in_any_field_is_handled(target: Target, registry: Registry) -> None:
    assert virtualtime.run(problems(registry, target, islice(objects.mistyped(target.make()), 0, None, ONE_IN))) == {}


@TARGETS
def test_a_malformed_stored_object_blocks_nothing(target: Target, registry: Registry) -> None:
    made = islice(objects.mistyped(target.make()), 5, None, 2 * ONE_IN)
    assert virtualtime.run(problems(registry, target, made, old=True)) == {}


@pytest.mark.parametrize("depth", [90, 300, 1_005, 5_000] if NIGHTLY else [300, 1_005])
@TARGETS
def test_any_nesting_in_any_field_is_handled(target: Target, depth: int, registry: Registry) -> None:
    made = list(islice(objects.deep_in(target.make(), depth), 0, None, 5 if NIGHTLY else 15))
    found = virtualtime.run(problems(registry, target, made))
    assert {what: said for what, said in found.items() if "says none" not in said} == {}
    assert virtualtime.run(problems(registry, target, made, old=True)) == {}
