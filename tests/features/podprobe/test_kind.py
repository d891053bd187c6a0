"""PodProbeMarkers: validation."""

from __future__ import annotations

from typing import Any

import pytest

from app.features.podprobe.validation import spec_errors

TCP = {"tcpSocket": {"port": 1}}
GET = {"path": "/", "port": 1, "scheme": "HTTP"}
HEADERS = [{"name": "a b", "value": ""}]
SUCCEEDED = {"state": "Succeeded", "labels": {"a": "b"}}


def marker(**probe: Any) -> dict[str, Any]:
    entry = {"name": "p", "containerName": "main", "podConditionType": "a.com/p", "probe": TCP}
    return {"selector": {"matchLabels": {"a": "b"}}, "probes": [{**entry, **probe}]}


@pytest.mark.behaviour("PPM-2", "PPM-3", "PPM-4", "PPM-44")
@pytest.mark.parametrize(
    ("probe", "fields"),
    [
        ({}, ""),
        ({"name": "a#b"}, "name"),
        ({"name": "Ready"}, "name"),
        ({"podConditionType": "Ready"}, "podConditionType"),
        ({"podConditionType": "KruisePodReady"}, "podConditionType"),
        ({"podConditionType": "a b"}, "podConditionType"),
        ({"podConditionType": ""}, "markerPolicy"),
        ({"containerName": ""}, "containerName"),
        ({"probe": {"grpc": {"port": 1}}}, "probe.grpc"),
        ({"probe": {"exec": {"command": []}}}, "probe.exec.command"),
        ({"probe": {"exec": {"command": ["a"]}, **TCP, "periodSeconds": -1}}, "probe.tcpSocket probe.periodSeconds"),
        ({"probe": {"tcpSocket": {"host": "h", "port": 70000}}}, "probe.tcpSocket.host probe.tcpSocket.port"),
        ({"probe": {"httpGet": {**GET, "port": "WEB"}}}, "probe.httpGet.port probe.httpGet.port"),
        ({"probe": {"httpGet": {"port": 1, "scheme": "ftp"}}}, "probe.httpGet.path probe.httpGet.scheme"),
        ({"probe": {"httpGet": {**GET, "httpHeaders": HEADERS}}}, "probe.httpGet.httpHeaders[0].name"),
        ({"probe": {"httpGet": {**GET, "path": "http://[x"}}}, "probe.httpGet.path"),
        ({"probe": {"httpGet": {**GET, "path": "/%zz"}}}, "probe.httpGet.path"),
        ({"probe": {"httpGet": {**GET, "path": "/a#%"}}}, "probe.httpGet.path"),
        ({"probe": {"httpGet": {**GET, "path": "1:2"}}}, "probe.httpGet.path"),
        ({"probe": {"httpGet": {**GET, "path": "/a%20b?c=%zz"}}}, ""),
        ({"probe": {"httpGet": {**GET, "path": "/a:b"}}}, ""),
        ({"markerPolicy": [{"state": "Succeeded", "labels": {"a b": "c"}}]}, "markerPolicy[0].labels"),
        ({"markerPolicy": [SUCCEEDED, {"state": "Succeeded"}]}, "markerPolicy[1].state markerPolicy[1].labels"),
        ({"markerPolicy": [{"state": "Unknown", "labels": {"a": "b"}}]}, "markerPolicy[0].state"),
        ({"markerPolicy": [{"state": "Succeeded", "labels": {f"l{n}": "" for n in range(256)}}]}, "markerPolicy"),
        ({"markerPolicy": [SUCCEEDED] * 257}, "markerPolicy"),
    ],
)
def test_probe_errors_name_the_field(probe: dict[str, Any], fields: str) -> None:
    found = [error.field for error in spec_errors(marker(**probe))]
    assert found == [f"spec.probes[0].{field}" for field in fields.split()]


@pytest.mark.behaviour("PPM-1", "PPM-2")
@pytest.mark.parametrize(
    ("spec", "fields"),
    [
        ({**marker(), "probes": marker()["probes"] * 2}, ["spec.probes[1].name"]),
        ({**marker(), "probes": marker()["probes"] + marker(name="q")["probes"]}, ["spec.probes[1].podConditionType"]),
        ({**marker(), "probes": marker()["probes"] * 300}, ["spec.probes"]),
        ({**marker(), "selector": {}}, ["spec.selector"]),
        ({"probes": []}, ["spec.selector", "spec.probes"]),
    ],
)
def test_marker_errors_name_the_field(spec: dict[str, Any], fields: list[str]) -> None:
    assert [error.field for error in spec_errors(spec)] == fields


@pytest.mark.behaviour("PPM-1")
def test_the_selector_of_a_marker_is_immutable() -> None:
    former = {**marker(), "selector": {"matchLabels": {"a": "c"}}}
    assert [error.field for error in spec_errors(marker(), former)] == ["spec.selector"]
