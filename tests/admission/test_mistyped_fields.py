"""Reviews with a value of a wrong type in each field of each kind: either a 4xx that names the field, or accepted."""

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from app.admission.metrics import AdmissionMetrics
from app.admission.server import AdmissionApp, create_app
from app.api.conversion import convert
from app.kube.admission import GroupVersionKind, Operation
from app.manager.features import kinds
from app.manager.gates import GATES, parse_gates
from app.manager.standalone import Standalone
from tests.admission.requests import recorded, review_about
from tests.fuzz import targets
from tests.fuzz.service import posted
from tests.fuzz.targets import Question
from tests.kit import virtualtime
from tests.kit.virtualtime import VirtualClock
from tests.nightly import NIGHTLY

SAMPLES = Path(__file__).parent.parent.parent / "policies/samples"
#: For any type of a field, at least two of these values have another type.
WRONG: tuple[Any, ...] = (True, "x", [{}])
#: Deeper fields are mostly Pod templates, which all kinds handle alike; the fuzzer covers them.
DEPTH = 5
KINDS = {kind.plural: kind.kind for kind in kinds()}
ALL_GATES = ",".join(f"{gate}=true" for gate in GATES)
Steps = tuple[Any, ...]


STANDALONE = Standalone(SAMPLES, parse_gates(ALL_GATES), VirtualClock(), Random(1))
ASKED = [
    one
    for one in targets.questions(STANDALONE.registry)
    if one.plural in KINDS and one.operation is not Operation.DELETE
]


def fields(value: Any, steps: Steps = ()) -> Iterator[Steps]:
    """Yield the paths in an object; for lists, only those in the first item."""
    if steps:
        yield steps
    if len(steps) == DEPTH:
        return
    items = value.items() if isinstance(value, dict) else enumerate(value[:1]) if isinstance(value, list) else ()
    for key, item in items:
        yield from fields(item, (*steps, key))


def complete(asked: Question, obj: Any) -> Any:
    metadata = {"name": "a", "namespace": "shop", "uid": "u", "resourceVersion": "7", "generation": 1}
    return {
        "apiVersion": f"{asked.group}/{asked.version}",
        **copy.deepcopy(obj),
        "metadata": {**metadata, **(obj.get("metadata") or {})},
    }


def objects(asked: Question) -> Iterator[tuple[Any, list[Steps]]]:
    """Yield valid objects of a kind, each with its fields that no earlier object has."""
    random = Random(7)
    recorded = targets._recorded().get((asked.group, asked.version, KINDS[asked.plural]), ())
    known: set[Steps] = set()
    for obj in (*recorded, *(targets.good(random, asked) for _ in range(3))):
        made = complete(asked, obj)
        new = [steps for steps in fields(made) if steps not in known]
        known.update(new)
        yield made, new if NIGHTLY else new[::8]


def replaced(obj: Any, steps: Steps, value: Any) -> Any:
    changed = copy.deepcopy(obj)
    holder = changed
    for step in steps[:-1]:
        holder = holder[step]
    holder[steps[-1]] = value
    return changed


def review(asked: Question, new: Any, old: Any) -> bytes:
    kind = GroupVersionKind(asked.group, asked.version, KINDS[asked.plural])
    fields = {"namespace": "shop", "name": "a", "oldObject": old}
    if asked.subresource:
        fields["subResource"] = asked.subresource
    return json.dumps(review_about(kind, asked.plural, asked.operation.value, new, **fields)).encode()


@pytest.fixture(scope="module")
def app() -> AdmissionApp:
    virtualtime.run(STANDALONE.reload())
    return create_app(STANDALONE.registry, convert, AdmissionMetrics())


@pytest.mark.behaviour("MGR-45")
@pytest.mark.parametrize("asked", ASKED, ids=lambda one: f"{one.path[1:]}-{one.version}-{one.operation}")
async def test_a_mistyped_value_never_causes_an_internal_error(asked: Question, app: AdmissionApp) -> None:
    wrong: dict[str, str] = {}
    tried = 0
    for obj, places in objects(asked):
        for steps in places:
            for value in WRONG:
                changed = replaced(obj, steps, value)
                pairs = [(changed, None)] if asked.operation is Operation.CREATE else [(changed, obj), (obj, changed)]
                for new, old in pairs:
                    tried += 1
                    code, answer = await posted(app, asked.path, review(asked, new, old))
                    response = json.loads(answer)["response"] if code == 200 else {"allowed": True}
                    status = response.get("status", {})
                    explained = 400 <= status.get("code", 0) < 500 and status.get("message")
                    if code >= 500 or not (response["allowed"] or explained):
                        wrong[f"{'.'.join(map(str, steps))}={value!r}"] = answer[:300].decode()
    assert tried > 5
    assert wrong == {}


@pytest.mark.behaviour("MGR-45")
@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"containers": "main"}, "spec.containers"),
        ({"containers": [None]}, "spec.containers[0]"),
        ({"containers": [{"name": "a", "env": "X=1"}]}, "spec.containers[0].env"),
        ({"volumes": {"name": "x"}}, "spec.volumes"),
    ],
)
async def test_a_malformed_pod_is_denied_with_the_field(spec: dict[str, Any], field: str, app: AdmissionApp) -> None:
    document = recorded("pod-create")
    document["request"]["object"]["spec"] |= spec
    _, answer = await posted(app, "/mutate-pod", json.dumps(document).encode())
    response = json.loads(answer)["response"]
    assert response["allowed"] is False
    assert 400 <= response["status"]["code"] < 500
    assert field in response["status"]["message"]
