"""The Grafana dashboard and the alerts use metrics and labels that the manager exports."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.features.deletionprotection.feature import RefusalCounters
from app.manager.metrics import ManagerMetrics
from app.manager.shared_state import Replica, families, merged, of_supervisor, text
from tests.deploy.rendering import ROOT, find, render

DASHBOARD: dict[str, Any] = json.loads(
    (Path(__file__).resolve().parents[2] / "deploy/dashboards/pykruise.json").read_text("utf-8")
)
#: Words of PromQL, and labels that Prometheus adds.
FUNCTIONS = {"absent", "count", "sum", "min", "max", "rate", "increase", "histogram_quantile", "time", "label_values"}
GIVEN_LABELS = {"namespace", "pod"}
GROUPING = re.compile(r"\bby \(([^)]*)\)")


def filled_metrics() -> ManagerMetrics:
    """Return metrics with at least one sample each, because metrics with labels start without samples."""
    metrics = ManagerMetrics()
    stats = metrics.admission.path("/mutate-pod")
    stats.finished(200, 0.001)
    stats.decided("mpod.kb.io", "patched")
    stats.bad_request("no JSON")
    for kind in ("Namespace", "CustomResourceDefinition", "Deployment"):
        metrics.of(RefusalCounters).count(kind, "", "a", "jane")
    metrics.reflectors.listed("Pod", 1)
    metrics.reflectors.events("Pod", 2)
    metrics.reflectors.error("Pod", "watch")
    metrics.reflectors.set_aside("Pod", 1)
    metrics.controllers.registered("sidecarset", 3)
    metrics.controllers.reconciled("sidecarset", "error", 0.1)
    metrics.controllers.active_workers("sidecarset", 1)
    metrics.controllers.panicked("sidecarset")
    metrics.queues.depth("sidecarset", 2)
    metrics.queues.added("sidecarset")
    metrics.queues.retried("sidecarset")
    metrics.queues.waited("sidecarset", 0.1)
    metrics.queues.worked("sidecarset", 0.1)
    metrics.responded("200", "GET", "127.0.0.1:6443")
    metrics.registration_repairs.labels("MutatingWebhookConfiguration x").inc()
    metrics.missing_definitions.labels("clonesets.apps.kruise.io").set(1)
    return metrics


def exported() -> dict[str, set[str]]:
    """Return the labels of each series."""
    found: dict[str, set[str]] = {}
    of_processes = merged({"webhook-0": families(filled_metrics().registry)})
    for line in text([*of_processes, *of_supervisor(Replica(("webhook-0",)))]).decode().splitlines():
        if line and not line.startswith("#"):
            match = re.match(r"([a-zA-Z_:][\w:]*)(?:\{(.*)\})? ", line)
            assert match is not None
            found.setdefault(match[1], set()).update(re.findall(r'(\w+)="', match[2] or ""))
    return found


def expressions() -> Iterator[tuple[str, str]]:
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"]


def series(expression: str) -> set[str]:
    """Return the series of an expression: its words except functions, labels and matchers."""
    bare = GROUPING.sub(" ", re.sub(r"\{[^}]*\}|\[[^\]]*\]", " ", expression))
    return set(re.findall(r"[a-zA-Z_:][\w:]*", bare)) - FUNCTIONS


@pytest.mark.parametrize(("title", "expression"), list(expressions()))
def test_panels_query_exported_metrics(title: str, expression: str) -> None:
    known = exported()
    asked = series(expression)
    assert asked
    assert asked <= known.keys()
    labels = {label.strip() for group in GROUPING.findall(expression) for label in group.split(",")}
    labels |= {
        label for matchers in re.findall(r"\{([^}]*)\}", expression) for label in re.findall(r"(\w+)\s*[=!]", matchers)
    }
    for name in asked:
        assert labels - GIVEN_LABELS - {"le"} <= known[name] | {"le"}, f"{title}: {name} has labels {known[name]}"


def test_legends_use_labels_that_the_expression_keeps() -> None:
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", ()):
            kept = {label.strip() for group in GROUPING.findall(target["expr"]) for label in group.split(",")} | {"pod"}
            assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= kept, panel["title"]


def test_variables_and_panels_are_complete() -> None:
    variables = {variable["name"]: variable for variable in DASHBOARD["templating"]["list"]}
    for name in ("namespace", "pod"):
        assert series(variables[name]["query"].partition(", ")[0]) <= exported().keys()
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(ids) == len(set(ids))
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        assert panel["type"] == "row" or panel["description"]


@pytest.mark.controlplane
def test_alerts_query_exported_metrics_and_are_documented() -> None:
    documents = render("prometheusRule.enabled=true", "prometheusRule.labels.release=prometheus")
    rule = find(documents, "PrometheusRule", "kruise-controller-manager")
    assert rule["metadata"]["labels"]["release"] == "prometheus"
    manual = (ROOT / "docs/operations.md").read_text("utf-8")
    known = exported()
    for alert in rule["spec"]["groups"][0]["rules"]:
        expression = alert["expr"]
        assert series(expression)
        assert series(expression) <= known.keys(), expression
        assert expression.count("{") == expression.count('namespace="kruise-system"'), expression
        kept = {label.strip() for group in GROUPING.findall(expression) for label in group.split(",")}
        assert set(re.findall(r"\$labels\.(\w+)", alert["annotations"]["summary"])) <= kept
        assert f"`{alert['alert']}`" in manual
