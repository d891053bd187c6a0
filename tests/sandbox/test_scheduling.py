import json
from collections.abc import Iterable
from typing import Any

import pytest

from app.sandbox.filters import NodeInfo, choose_node, requests
from app.sandbox.objects import Node, Pod, decode_node, decode_pod
from tests.kit import objects


def node(name: str, *, taints: Any = (), unschedulable: bool = False, **labels: str) -> Node:
    spec = {"taints": list(taints), "unschedulable": unschedulable}
    status = {"allocatable": ROOM}
    body = {"metadata": {"name": name, "labels": labels}, "spec": spec, "status": status}
    return decode_node(json.dumps(body).encode())


def pod(name: str = "web-0", node: str = "", *, labels: Any = None, requests: Any = None, **spec: Any) -> Pod:
    containers = [{"name": "main", "resources": {"requests": requests or {}}}]
    made = objects.pod_json(name, node=node, labels=labels or {}, spec={"containers": containers} | spec)
    return decode_pod(json.dumps(made).encode())


ROOM = {"cpu": "4", "memory": "8Gi", "pods": "20"}
NODES = [
    node("a", zone="1", cpus="4"),
    node("b", zone="2", cpus="16", gpu="yes"),
    node("tainted", zone="3", taints=[{"key": "only", "value": "batch", "effect": "NoSchedule"}]),
    node("cordoned", zone="4", unschedulable=True),
    node("disliked", zone="5", taints=[{"key": "x", "effect": "PreferNoSchedule"}]),
]


def node_infos(nodes: Iterable[Node], pods: Iterable[Pod]) -> list[NodeInfo]:
    """Return the nodes, each with its bound Pods that are not finished."""
    infos = {node.metadata.name: NodeInfo(node) for node in nodes}
    for one in pods:
        info = infos.get(one.spec.node_name)
        if info is not None and one.status.phase not in ("Succeeded", "Failed"):
            info.add(one)
    return list(infos.values())


def affinity(*terms: Any) -> dict[str, Any]:
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}
    return {"affinity": {"nodeAffinity": required}}


def expression(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


def named(name: str) -> dict[str, Any]:
    return {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]}


def in_zone(zone: str, **toleration: str) -> dict[str, Any]:
    return {"nodeSelector": {"zone": zone}, "tolerations": [toleration] if toleration else []}


BUSY = [pod(f"{name}-{n}", name) for name, count in {"a": 3, "b": 2, "disliked": 9}.items() for n in range(count)]


@pytest.mark.parametrize(
    ("spec", "chosen"),
    [
        pytest.param({}, "b", id="the one with the fewest Pods"),
        pytest.param(in_zone("1"), "a", id="node selector"),
        pytest.param(in_zone("9"), "", id="nowhere"),
        pytest.param(in_zone("3"), "", id="a taint"),
        pytest.param(in_zone("4"), "", id="cordoned"),
        pytest.param(in_zone("5"), "disliked", id="a preference is no requirement"),
        pytest.param(affinity(expression("gpu", "Exists")), "b", id="Exists"),
        pytest.param(affinity(expression("gpu", "DoesNotExist")), "a", id="DoesNotExist"),
        pytest.param(affinity(expression("zone", "NotIn", "2")), "a", id="NotIn"),
        pytest.param(affinity(expression("cpus", "Lt", "8")), "a", id="Lt"),
        pytest.param(affinity(expression("cpus", "Gt", "8")), "b", id="Gt"),
        pytest.param(affinity(expression("zone", "In", "7"), named("a")), "a", id="one term is enough"),
        pytest.param(affinity({**named("a"), **expression("zone", "In", "2")}), "", id="a term holds as a whole"),
        pytest.param(affinity({}), "", id="an empty term matches nothing"),
        pytest.param(in_zone("3", key="only", value="batch"), "tainted", id="tolerated"),
        pytest.param(in_zone("3", key="only", value="web"), "", id="another value"),
        pytest.param(in_zone("3", operator="Exists"), "tainted", id="all tolerated"),
        pytest.param(in_zone("3", operator="Exists", effect="NoExecute"), "", id="another effect"),
        pytest.param(
            in_zone("4", key="node.kubernetes.io/unschedulable", operator="Exists"),
            "cordoned",
            id="a daemon on a cordoned node",
        ),
    ],
)
def test_pods_are_placed_on_the_best_node_that_fits(spec: dict[str, Any], chosen: str) -> None:
    assert choose_node(pod(**spec), node_infos(NODES, BUSY))[0] == chosen


def test_without_nodes_pods_are_unschedulable() -> None:
    assert choose_node(pod(), []) == ("", "no nodes available to schedule pods")


def why(wanted: Pod, nodes: Any = NODES, others: Any = ()) -> str:
    node, reason = choose_node(wanted, node_infos(nodes, others))
    assert node == ""
    return reason


def test_reasons_are_counted_as_in_the_scheduler() -> None:
    assert why(pod(nodeSelector={"zone": "9"})) == (
        "0/5 nodes are available: 1 node(s) had untolerated taint {only: batch}, 1 node(s) were unschedulable, "
        "3 node(s) didn't match Pod's node affinity/selector. "
        "preemption: 0/5 nodes are available: 5 Preemption is not helpful for scheduling."
    )
    assert why(pod(requests={"cpu": "5", "memory": "9Gi"}), NODES[:2]) == (
        "0/2 nodes are available: 2 Insufficient cpu, 2 Insufficient memory. "
        "preemption: 0/2 nodes are available: 2 No preemption victims found for incoming pod."
    )


def test_running_pods_use_capacity() -> None:
    [one] = NODES[:1]
    running = [pod("x", "a", requests={"cpu": "3500m"})]
    assert "1 Insufficient cpu" in why(pod(requests={"cpu": "600m"}), [one], running)
    assert choose_node(pod(requests={"cpu": "500m"}), node_infos([one], running))[0] == "a"
    assert "1 Too many pods" in why(pod(), [one], [pod(f"p{n}", "a") for n in range(20)])
    port = {"containers": [{"name": "main", "ports": [{"containerPort": 80, "hostPort": 80}]}]}
    busy = [pod("y", "a", **port)]
    assert "1 node(s) didn't have free ports for the requested pod ports" in why(pod(**port), [one], busy)


def test_a_pod_requests_its_largest_init_container_and_its_sidecars() -> None:
    inits = [
        {"name": "prep", "resources": {"requests": {"cpu": "3"}}},
        {"name": "proxy", "restartPolicy": "Always", "resources": {"requests": {"cpu": "500m"}}},
        {"name": "late", "resources": {"requests": {"cpu": "1"}}},
    ]
    assert requests(pod(requests={"cpu": "1"}, initContainers=inits)) == {"cpu": 3000, "pods": 1}
    assert requests(pod(requests={"cpu": "3"}, initContainers=inits)) == {"cpu": 3500, "pods": 1}


WEB = {"app": "web"}
APART = {"labelSelector": {"matchLabels": WEB}, "topologyKey": "zone"}
ZONES = [node("a", zone="1"), node("b", zone="1"), node("c", zone="2")]


def required(kind: str) -> dict[str, Any]:
    return {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [APART]}}}


def test_anti_affinity_separates_pods() -> None:
    lonely = pod("web-1", labels=WEB, **required("podAntiAffinity"))
    assert choose_node(lonely, node_infos(ZONES, [pod("x", "a", labels=WEB)]))[0] == "c"
    everywhere = [pod("x", "a", labels=WEB), pod("y", "c", labels=WEB)]
    assert "3 node(s) didn't match pod anti-affinity rules" in why(lonely, ZONES, everywhere)
    # The term also keeps away later Pods without such a term.
    there = [pod("x", "a", labels=WEB, **required("podAntiAffinity")), pod("y", "c")]
    assert choose_node(pod("web-2", labels=WEB), node_infos(ZONES, there))[0] == "c"
    refused = why(pod("web-2", labels=WEB), ZONES[:2], there)
    assert "2 node(s) didn't satisfy existing pods anti-affinity rules" in refused


def test_affinity_groups_pods() -> None:
    near = pod("web-1", **required("podAffinity"))
    assert choose_node(near, node_infos(ZONES, [pod("x", "c", labels=WEB)]))[0] == "c"
    assert "3 node(s) didn't match pod affinity rules" in why(near, ZONES)
    # The first Pod of the group may run anywhere.
    assert choose_node(pod("web-1", labels=WEB, **required("podAffinity")), node_infos(ZONES, []))[0] == "a"


def test_pods_are_spread_over_a_topology() -> None:
    constraint = {"maxSkew": 1, "topologyKey": "zone", "labelSelector": {"matchLabels": WEB}}
    hard = {"topologySpreadConstraints": [constraint | {"whenUnsatisfiable": "DoNotSchedule"}]}
    soft = {"topologySpreadConstraints": [constraint | {"whenUnsatisfiable": "ScheduleAnyway"}]}
    placed = [pod("x", "a", labels=WEB)]
    for spec in (hard, soft):
        assert choose_node(pod("web-1", labels=WEB, **spec), node_infos(ZONES, [*placed, pod("z", "c")]))[0] == "c"
    full = [*ZONES[:2], node("c", zone="2", unschedulable=True)]
    refused = why(pod("web-1", labels=WEB, **hard), full, placed)
    assert "2 node(s) didn't match pod topology spread constraints" in refused
    nowhere = why(pod("web-1", labels=WEB, **hard), [node("d")])
    assert "1 node(s) didn't match pod topology spread constraints (missing required label)" in nowhere
