from prometheus_client import CollectorRegistry, generate_latest

from app.workloads.metrics import WorkloadCounters


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
    assert 'cloneset_scale_expectation_leakage_total{name="other",namespace="other"} 1500.0' in text
