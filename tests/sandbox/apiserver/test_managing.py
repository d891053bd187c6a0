"""Managed fields: recorded at every write, computed when they are read."""

from typing import Any

import pytest

from app.kube.client import Client, PatchType
from app.kube.clock import SystemClock
from app.kube.resources import CONFIGMAPS, DEPLOYMENTS
from app.sandbox.apiserver.cel import RULE_VARIABLES, fault
from app.sandbox.apiserver.customresources import accepted_names
from app.sandbox.apiserver.server import ApiServer
from app.sandbox.apiserver.versions import full, simple
from tests.kit.cluster import in_api_server

BODY = {"metadata": {"name": "c"}, "data": {"a": "1", "b": "1"}}


def by_manager(obj: Any) -> dict[str, Any]:
    return {one["manager"]: one["fieldsV1"] for one in obj["metadata"]["managedFields"]}


@in_api_server
async def test_in_process_managed_fields_are_shown_on_request(client: Client, api: ApiServer) -> None:
    assert "managedFields" in (await client.create(CONFIGMAPS, BODY, "default"))["metadata"]
    plain = Client(api.transport(), SystemClock())
    found = await plain.get(CONFIGMAPS, "c", "default")
    assert "managedFields" not in found["metadata"]
    # A client that writes back an object without managed fields removes none.
    await plain.replace(CONFIGMAPS, "c", found, "default")
    assert "managedFields" in (await client.get(CONFIGMAPS, "c", "default"))["metadata"]


@pytest.mark.parametrize("updates", [3, 40])
@in_api_server
async def test_many_updates_by_one_manager_make_one_entry(client: Client, api: ApiServer, updates: int) -> None:
    await client.create(CONFIGMAPS, BODY, "default", field_manager="maker")
    for number in range(updates):
        body = {"data": {"a": str(number + 2), f"k{number % 2}": "x"}}
        found = await client.patch(CONFIGMAPS, "c", body, "default", field_manager="changer")
    assert by_manager(found) == {
        "maker": {"f:data": {".": {}, "f:b": {}}},
        "changer": {"f:data": {"f:a": {}, "f:k0": {}, "f:k1": {}}},
    }


@in_api_server
async def test_entries_of_more_than_ten_updaters_are_merged(client: Client, api: ApiServer) -> None:
    await client.create(CONFIGMAPS, BODY, "default", field_manager="m-00")
    for number in range(1, 13):
        name = f"m-{number:02}"
        found = await client.patch(CONFIGMAPS, "c", {"data": {name: "x"}}, "default", field_manager=name)
    managers = by_manager(found)
    assert len(managers) == 10
    assert {"f:a", "f:b", "f:m-01"} <= managers["ancient-changes"]["f:data"].keys()


@in_api_server
async def test_scaling_is_recorded_for_replicas(client: Client, api: ApiServer) -> None:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    spec = {"selector": {"matchLabels": {"a": "b"}}, "template": template}
    await client.create(DEPLOYMENTS, {"metadata": {"name": "d"}, "spec": spec}, "default", field_manager="maker")
    scale = await client.patch(
        DEPLOYMENTS, "d", {"spec": {"replicas": 3}}, "default", kind=PatchType.MERGE, subresource="scale",
        field_manager="scaler",
    )  # fmt: skip
    assert by_manager(scale) == {"scaler": {"f:spec": {"f:replicas": {}}}}
    found = by_manager(await client.get(DEPLOYMENTS, "d", "default"))
    assert found["scaler"] == {"f:spec": {"f:replicas": {}}}
    assert "f:replicas" not in found["maker"]["f:spec"]


# ---- other behavior of a real server


def test_a_rule_refers_to_existing_fields() -> None:
    spec = {
        "type": "object",
        "properties": {"low": {"type": "integer"}, "free": {"type": "object", "additionalProperties": {}}},
    }
    assert not fault("self.low > 1 && self.free.anything == 'x'", RULE_VARIABLES, spec)
    assert fault("1 < self.high", RULE_VARIABLES, spec).endswith(
        "ERROR: <input>:1:9: undefined field 'high'\n | 1 < self.high\n | ........^"
    )


def test_an_autoscaler_round_trips_through_v1() -> None:
    metrics = [
        {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}},
        {"type": "Resource", "resource": {"name": "memory", "target": {"type": "AverageValue", "averageValue": "1Gi"}}},
    ]
    spec = {"maxReplicas": 3, "metrics": metrics, "behavior": {"scaleDown": {"selectPolicy": "Disabled"}}}
    scaler = {
        "kind": "HorizontalPodAutoscaler",
        "apiVersion": "autoscaling/v2",
        "metadata": {"name": "a"},
        "spec": spec,
    }
    old = simple(scaler)
    assert old["spec"] == {"maxReplicas": 3, "targetCPUUtilizationPercentage": 50}
    assert full(old)["spec"] == spec
    assert full(old)["metadata"] == {"name": "a"}


def test_a_taken_name_is_rejected() -> None:
    wanted = {"plural": "ones", "singular": "one", "kind": "One", "listKind": "OneList", "shortNames": ["o"]}
    assert accepted_names(wanted, {}, [])[0] == wanted
    names, reason, message = accepted_names(wanted, {}, [{"plural": "others", "kind": "One", "shortNames": ["x"]}])
    assert (names["kind"], reason, message) == ("", "KindConflict", '"One" is already in use')
    # An existing entry keeps its name.
    assert accepted_names(wanted, wanted, [{"kind": "One"}])[1] == ""
