import json
from typing import Any

import pytest
from app.sandbox.scheduling import choose_node

from app.kube.objects import Node, decode_node
from app.sandbox.objects import decode_pod


def node(name: str, *, taints: Any = (), unschedulable: bool = False, **labels: str) -> Node:
    spec = {"taints": list(taints), "unschedulable": unschedulable}
    return decode_node(json.dumps({"metadata": {"name": name, "labels": labels}, "spec": spec}).encode())


NODES = [
    node("a", zone="1", cpus="4"),
    node("b", zone="2", cpus="16", gpu="yes"),
    node("tainted", zone="3", taints=[{"key": "only", "value": "batch", "effect": "NoSchedule"}]),
    node("cordoned", zone="4", unschedulable=True),
    node("disliked", zone="5", taints=[{"key": "x", "effect": "PreferNoSchedule"}]),
]


def affinity(*terms: Any) -> dict[str, Any]:
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}
    return {"affinity": {"nodeAffinity": required}}


def expression(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


def named(name: str) -> dict[str, Any]:
    return {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]}


BUSY = {"a": 3, "b": 2, "disliked": 9}


@pytest.mark.parametrize(
    ("spec", "chosen"),
    [
        pytest.param({}, "b", id="the one with the fewest Pods"),
        pytest.param({"nodeSelector": {"zone": "1"}}, "a", id="node selector"),
        pytest.param({"nodeSelector": {"zone": "9"}}, "", id="nowhere"),
        pytest.param({"nodeSelector": {"zone": "3"}}, "", id="a taint"),
        pytest.param({"nodeSelector": {"zone": "4"}}, "", id="cordoned"),
        pytest.param({"nodeSelector": {"zone": "5"}}, "disliked", id="a preference holds nobody off"),
        pytest.param(affinity(expression("gpu", "Exists")), "b", id="Exists"),
        pytest.param(affinity(expression("gpu", "DoesNotExist")), "a", id="DoesNotExist"),
        pytest.param(affinity(expression("zone", "NotIn", "2")), "a", id="NotIn"),
        pytest.param(affinity(expression("cpus", "Lt", "8")), "a", id="Lt"),
        pytest.param(affinity(expression("cpus", "Gt", "8")), "b", id="Gt"),
        pytest.param(affinity(expression("zone", "In", "7"), named("a")), "a", id="one term is enough"),
        pytest.param(affinity({**named("a"), **expression("zone", "In", "2")}), "", id="a term holds as a whole"),
        pytest.param(affinity({}), "", id="an empty term matches nothing"),
        pytest.param(
            {"nodeSelector": {"zone": "3"}, "tolerations": [{"key": "only", "value": "batch"}]},
            "tainted",
            id="tolerated",
        ),
        pytest.param(
            {"nodeSelector": {"zone": "3"}, "tolerations": [{"key": "only", "value": "web"}]}, "", id="another value"
        ),
        pytest.param(
            {"nodeSelector": {"zone": "3"}, "tolerations": [{"operator": "Exists"}]}, "tainted", id="all tolerated"
        ),
        pytest.param(
            {"nodeSelector": {"zone": "3"}, "tolerations": [{"operator": "Exists", "effect": "NoExecute"}]},
            "",
            id="another effect",
        ),
        pytest.param(
            {
                "nodeSelector": {"zone": "4"},
                "tolerations": [{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}],
            },
            "cordoned",
            id="a daemon on a cordoned node",
        ),
    ],
)
def test_where_a_pod_goes(spec: dict[str, Any], chosen: str) -> None:
    pod = decode_pod(json.dumps({"metadata": {"name": "web-0"}, "spec": spec}).encode())
    assert choose_node(pod, NODES, BUSY) == chosen


def test_without_nodes_there_is_no_place() -> None:
    assert choose_node(decode_pod(b"{}"), [], {}) == ""
