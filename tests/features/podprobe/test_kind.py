"""PodProbeMarkers: validation."""

from __future__ import annotations

from typing import Any

import pytest

from app.features.podprobe.validation import spec_errors


def marker(**probe: Any) -> dict[str, Any]:
    entry = {"name": "p", "containerName": "main", "podConditionType": "a.com/p", "probe": {"tcpSocket": {"port": 1}}}
    return {"selector": {"matchLabels": {"a": "b"}}, "probes": [{**entry, **probe}]}


@pytest.mark.behaviour("PPM-1", "PPM-2", "PPM-3", "PPM-4", "PPM-44")
@pytest.mark.parametrize(
    ("spec", "fields"),
    [
        (marker(), []),
        (marker(name="a#b"), ["spec.probes[0].name"]),
        (marker(name="Ready"), ["spec.probes[0].name"]),
        (marker(podConditionType="Ready"), ["spec.probes[0].podConditionType"]),
        (marker(podConditionType="KruisePodReady"), ["spec.probes[0].podConditionType"]),
        (marker(podConditionType="a b"), ["spec.probes[0].podConditionType"]),
        (marker(podConditionType=""), ["spec.probes[0].markerPolicy"]),
        (marker(containerName=""), ["spec.probes[0].containerName"]),
        (marker(probe={"grpc": {"port": 1}}), ["spec.probes[0].probe.grpc"]),
        (marker(probe={"exec": {"command": []}}), ["spec.probes[0].probe.exec.command"]),
        (
            marker(probe={"exec": {"command": ["a"]}, "tcpSocket": {"port": 1}, "periodSeconds": -1}),
            ["spec.probes[0].probe.tcpSocket", "spec.probes[0].probe.periodSeconds"],
        ),
        (
            marker(probe={"tcpSocket": {"host": "h", "port": 70000}}),
            ["spec.probes[0].probe.tcpSocket.host", "spec.probes[0].probe.tcpSocket.port"],
        ),
        (
            marker(probe={"httpGet": {"port": "WEB", "scheme": "ftp", "httpHeaders": [{"name": "a b", "value": ""}]}}),
            [
                *["spec.probes[0].probe.httpGet.port"] * 2,
                "spec.probes[0].probe.httpGet.path",
                "spec.probes[0].probe.httpGet.scheme",
                "spec.probes[0].probe.httpGet.httpHeaders[0].name",
            ],
        ),
        (
            marker(probe={"httpGet": {"port": 1, "scheme": "HTTP", "path": "http://[x"}}),
            ["spec.probes[0].probe.httpGet.path"],
        ),
        (
            marker(markerPolicy=[{"state": "Succeeded", "labels": {"a b": "c"}}, {"state": "Succeeded"}]),
            [
                "spec.probes[0].markerPolicy[0].labels",
                "spec.probes[0].markerPolicy[1].state",
                "spec.probes[0].markerPolicy[1].labels",
            ],
        ),
        (marker(markerPolicy=[{"state": "Unknown", "labels": {"a": "b"}}]), ["spec.probes[0].markerPolicy[0].state"]),
        (
            marker(markerPolicy=[{"state": "Succeeded", "labels": {f"l{number}": "" for number in range(256)}}]),
            ["spec.probes[0].markerPolicy"],
        ),
        (marker(markerPolicy=[{"state": "Succeeded"}] * 257), ["spec.probes[0].markerPolicy"]),
        ({**marker(), "probes": marker()["probes"] * 2}, ["spec.probes[1].name"]),
        (
            {**marker(), "probes": [*marker()["probes"], *marker(name="q")["probes"]]},
            ["spec.probes[1].podConditionType"],
        ),
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
