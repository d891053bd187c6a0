import pytest
from prometheus_client import CollectorRegistry, generate_latest

from app.manager.shared_state import families, text
from app.workloads.controllers import WorkloadCounters


@pytest.mark.behaviour("CS-171", "MGR-25")
def test_leaked_expectations_have_the_name_of_openkruise() -> None:
    registry = CollectorRegistry()
    counters = WorkloadCounters(registry)
    for kind in ("CloneSet", "StatefulSet", "CloneSet"):
        counters.of(kind).expectation_leaked("shop", "web")
    lines = text(families(registry)).decode().splitlines()
    assert "# TYPE cloneset_scale_expectation_leakage counter" in lines
    assert 'cloneset_scale_expectation_leakage{name="web",namespace="shop"} 2.0' in lines
    assert 'statefulset_scale_expectation_leakage{name="web",namespace="shop"} 1.0' in lines


def test_many_namespaces_and_objects_add_no_metrics() -> None:
    registry = CollectorRegistry()
    counters = WorkloadCounters(registry).of("CloneSet")
    for number in range(2_000):
        counters.expectation_leaked(f"made-up-{number}", "web")
        counters.in_place_started(f"made-up-{number}")
        counters.in_place_failed(f"made-up-{number}")
        counters.in_place_finished(f"made-up-{number}", 1.0)
    text = generate_latest(registry).decode()
    assert len(text) < 2_000_000
    assert 'kruise_inplace_update_total{kind="CloneSet",namespace="made-up-7"} 1.0' in text
    assert 'kruise_inplace_update_total{kind="CloneSet",namespace="other"} 1500.0' in text
    assert 'cloneset_scale_expectation_leakage{name="other",namespace="other"} 1500.0' in text
