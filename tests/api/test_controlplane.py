"""Our CustomResourceDefinitions on a real API server: explain, columns, defaults and pruning.

No webhook runs, so only the schemas apply.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.api import structural
from app.features.sidecarset.kind import SIDECAR_SET
from app.kube.client import Client
from app.kube.clock import SystemClock
from app.kube.config import load_config
from app.kube.transport import AiohttpTransport
from app.manager.features import kinds
from app.pods.template_check import template_errors
from app.sandbox.apiserver.customvalidation import fill_defaults, normalized
from tests.api.record_template_answers import ANSWERS, ask
from tests.api.template_cases import CASES
from tests.cluster.controlplane import ControlPlane, wait_until_established
from tests.cluster.definitions import delete_definitions
from tests.scenarios.world import eventually

pytestmark = pytest.mark.controlplane

CRDS = Path(__file__).parents[2] / "deploy" / "crds"
PATH = "/apis/apps.kruise.io/v1beta1/sidecarsets"


@pytest.fixture(scope="module")
def served(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """Yield a control plane with our kinds, which are removed afterwards."""
    control_plane.kubectl("apply", "--server-side", "-f", str(CRDS))
    wait_until_established(control_plane.kubectl, "-f", str(CRDS))
    yield control_plane
    delete_definitions(control_plane, [kind.crd_name for kind in kinds()])


def set_of(name: str, **spec: Any) -> dict[str, Any]:
    whole = {"selector": {"matchLabels": {"a": "b"}}, "containers": [{"name": "c", "image": "i"}], **spec}
    return {
        "apiVersion": "apps.kruise.io/v1beta1",
        "kind": "SidecarSet",
        "metadata": {"name": name},
        "spec": {key: value for key, value in whole.items() if value is not None},
    }


@pytest.mark.behaviour("MGR-51")
def test_every_definition_is_established_and_structural(served: ControlPlane) -> None:
    for kind in kinds():
        crd = json.loads(served.kubectl("get", "crd", kind.crd_name, "-o", "json").stdout)
        conditions = {condition["type"]: condition["status"] for condition in crd["status"]["conditions"]}
        assert conditions["Established"] == conditions["NamesAccepted"] == "True"
        assert conditions.get("NonStructuralSchema", "False") == "False"
        assert crd["status"]["storedVersions"] == [kind.hub.name]


def test_kubectl_explain_describes_the_fields(served: ControlPlane) -> None:
    def explain() -> str:
        return " ".join(
            served.kubectl("explain", "sidecarset.spec.updateStrategy.partition", check=False).stdout.split()
        )

    # New kinds appear in the published OpenAPI document a moment after they are established.
    eventually(lambda: "partition" in explain(), "the kind is explained", 30)
    schema = SIDECAR_SET.hub.schema
    for name in ("spec", "updateStrategy", "partition"):
        schema = schema["properties"][name]
    head = "GROUP: apps.kruise.io KIND: SidecarSet VERSION: v1beta1 FIELD: partition <Object> DESCRIPTION: "
    assert explain() == head + schema["description"]
    containers = served.kubectl("explain", "sidecarset.spec.containers").stdout
    assert "podInjectPolicy" in containers
    assert "transferEnv" in containers
    assert "ENUM:" in served.kubectl("explain", "sidecarset.spec.injectionStrategy.revision.policy").stdout
    template = "uniteddeployment.spec.template"
    for field in ("cloneSetTemplate.spec.updateStrategy", "advancedStatefulSetTemplate.spec.ordinals.start"):
        assert "FIELD:" in served.kubectl("explain", f"{template}.{field}").stdout
    assert "progressDeadlineSeconds" in served.kubectl("explain", f"{template}.deploymentTemplate.spec").stdout


def test_missing_fields_are_defaulted_and_unknown_ones_pruned(served: ControlPlane) -> None:
    policy = {"targetContainersMode": "sum", "resourcesExpr": {"limits": {"cpu": "cpu"}}}
    given = set_of(
        "defaults",
        containers=[{"name": "c", "image": "i", "fieldOfTheFuture": 1, "resourcesPolicy": policy}],
        injectionStrategy={"revision": {}},
        imagePullSecrets=[{}],
        volumes=[{"name": "v", "newSource": {"deep": [1]}}],
        updateStrategy={"type": None, "unknown": 1},
        mistake=True,
    )
    code, stored = served.request("POST", PATH, given)
    assert code == 201
    schema = SIDECAR_SET.hub.schema
    ours = normalized(schema, given)
    fill_defaults(schema, ours)
    assert stored["spec"] == ours["spec"]
    assert stored["spec"]["containers"][0]["fieldOfTheFuture"] == 1
    assert "mistake" not in stored["spec"]


WRONG: dict[str, dict[str, Any]] = {
    "string for a number": {"revisionHistoryLimit": "3"},
    "boolean for a number": {"revisionHistoryLimit": True},
    "number for a boolean": {"updateStrategy": {"paused": 1}},
    "list for a selector": {"selector": []},
    "number for a label": {"selector": {"matchLabels": {"a": 1}}},
    "operator missing": {"selector": {"matchExpressions": [{"key": "a"}]}},
    "null container": {"containers": [None]},
    "text for containers": {"containers": "none"},
    "unknown policy": {"injectionStrategy": {"revision": {"policy": "Bad"}}},
    "object for a partition": {"updateStrategy": {"partition": {}}},
    "fraction for a partition": {"updateStrategy": {"partition": 1.5}},
    "scatter without a value": {"updateStrategy": {"scatterStrategy": [{"key": "a"}]}},
    "number for an annotation": {"patchPodMetadata": [{"annotations": {"a": 5}}]},
    "expression missing": {
        "containers": [{"name": "c", "image": "i", "resourcesPolicy": {"targetContainersMode": "sum"}}]
    },
    "volume as text": {"volumes": ["v"]},
}


@pytest.mark.parametrize("name", WRONG)
def test_schema_errors_match_the_api_server(served: ControlPlane, name: str) -> None:
    given = set_of("wrong", **WRONG[name])
    code, answer = served.request("POST", f"{PATH}?dryRun=All", given)
    assert code == 422
    ours = structural.invalid_message(SIDECAR_SET, SIDECAR_SET.hub, given)
    if name.endswith("for a partition"):
        # The API server reports the type error three times.
        ours = ours.replace("is invalid: ", "is invalid: [")
        assert answer["message"].startswith(f"{ours}, ")
    else:
        assert ours == answer["message"]


@pytest.mark.behaviour("SS-21")
def test_recorded_template_answers_match_this_api_server(control_plane: ControlPlane) -> None:
    recorded = json.loads(ANSWERS.read_text("utf-8"))
    assert {name: ask(control_plane, case) for name, case in CASES.items()} == recorded


@pytest.mark.behaviour("SS-21")
async def test_a_template_dry_run_leaves_nothing_behind(control_plane: ControlPlane) -> None:
    transport = AiohttpTransport(await load_config(str(control_plane.kubeconfig)))
    client = Client(transport, SystemClock())
    try:
        wrong = {"spec": {"containers": [{"name": "a"}], "volumes": [{"name": "v"}, {"name": "v"}]}}
        assert await template_errors(client, "default", wrong, "spec.template") == [
            'spec.template.spec.volumes[1].name: Duplicate value: "v"',
            "spec.template.spec.containers[0].image: Required value",
        ]
        mistyped = {"spec": {"containers": [{"name": "a", "image": "i", "ports": "80"}]}}
        (message,) = await template_errors(client, "default", mistyped, "")
        assert message.startswith("spec: PodTemplate in version")
        assert (
            await template_errors(client, "default", {"spec": {"containers": [{"name": "a", "image": "i"}]}}, "") == []
        )
    finally:
        await transport.close()
    assert control_plane.request("GET", "/api/v1/namespaces/default/podtemplates")[1]["items"] == []
