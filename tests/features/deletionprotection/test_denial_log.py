from __future__ import annotations

import io
import json
import logging
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from app.features.deletionprotection.feature import RefusalCounters, RefusalRecord
from app.framework import denial_log
from app.framework.denial_log import ProtectionLog
from app.manager.shared_state import continued, families, text


def exposed(registry: CollectorRegistry) -> list[str]:
    return [line for line in text(families(registry)).decode().splitlines() if not line.startswith("# HELP")]


@pytest.mark.behaviour("DP-40", "DP-55")
def test_refusal_metrics_have_the_names_dashboards_expect() -> None:
    counters = RefusalCounters(registry := CollectorRegistry())
    assert exposed(registry) == []  # no series before the first refusal
    counters.count("Namespace", "", "shop", "jane")
    counters.count("Namespace", "", "shop", "jane")
    counters.count("CustomResourceDefinition", "", "widgets.example.com", "jane")
    counters.count("Deployment", "web", "shop", 'odd"user')
    counters.count("Service", "web", "shop", "jane")
    assert exposed(registry) == [
        "# TYPE namespace_deletion_protection counter",
        'namespace_deletion_protection{name="shop",username="jane"} 2.0',
        "# TYPE crd_deletion_protection counter",
        'crd_deletion_protection{name="widgets.example.com",username="jane"} 1.0',
        "# TYPE workload_deletion_protection counter",
        'workload_deletion_protection{kind_namespace_name="Deployment_web_shop",username="odd\\"user"} 1.0',
        'workload_deletion_protection{kind_namespace_name="Service_web_shop",username="jane"} 1.0',
    ]


@pytest.mark.behaviour("DP-40")
def test_refusal_counters_survive_a_restart() -> None:
    registries = []
    for _ in range(2):
        registries.append(CollectorRegistry())
        counters = RefusalCounters(registries[-1])
        counters.count("Namespace", "", "shop", "jane")
    found = continued(families(registries[1]), families(registries[0]))
    assert [sample[-1] for family in found for sample in family.samples] == [2.0]


@pytest.mark.behaviour("DP-41", "DP-55")
def test_each_refusal_is_a_line_in_the_protection_log(tmp_path: Path) -> None:
    log = ProtectionLog(tmp_path)
    log.check()
    record = RefusalRecord(RefusalCounters(CollectorRegistry()), log)
    record("Namespace", "", "shop", "jane")
    record("Service", "web", "shop", "jané")
    first, second = (tmp_path / "protection.log").read_text("utf-8").splitlines()
    assert first == '{"Event":"DeletionProtection","Kind":"Namespace","Namespace":"","Name":"shop","UserAgent":"jane"}'
    assert json.loads(second)["UserAgent"] == "jané"


def test_a_log_line_quotes_little_of_forged_names(tmp_path: Path) -> None:
    """Ten refusals with a six-megabyte user name pushed all older lines out of the file."""
    record = RefusalRecord(RefusalCounters(CollectorRegistry()), ProtectionLog(tmp_path))
    record("Service", "w" * 1_000_000, "s" * 1_000_000, "\x1b" * 1_000_000)
    line = (tmp_path / "protection.log").read_bytes()
    assert len(line) < 2_000
    assert json.loads(line)["Name"].startswith("ssss")


def test_metrics_can_be_read_during_counting(monkeypatch: pytest.MonkeyPatch) -> None:
    counters = RefusalCounters(CollectorRegistry())
    counters.count("Service", "web", "a", "jane")

    class Overtaken(denial_log.Metric):
        def add_sample(self, *args: Any, **more: Any) -> None:
            counters.count("Service", "web", f"meanwhile-{len(self.samples)}", "jane")
            super().add_sample(*args, **more)

    monkeypatch.setattr(denial_log, "Metric", Overtaken)
    assert [len(metric.samples) for metric in counters.collect()] == [1]


@pytest.mark.behaviour("DP-41", "MGR-126")
def test_an_unwritable_log_falls_back_to_standard_output(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    output = io.StringIO()
    log = ProtectionLog(tmp_path / "not-there", output)
    with caplog.at_level(logging.WARNING):
        log.check()
        log.write("DeletionProtection", "Service", "web", "shop", "jane")
        log.write("DeletionProtection", "Service", "web", "shop", "jane")
    assert [json.loads(line)["Kind"] for line in output.getvalue().splitlines()] == ["Service", "Service"]
    (warning,) = caplog.messages
    assert "--protection-log-path" in warning
    assert "not-there" in warning


@pytest.mark.behaviour("MGR-126")
def test_a_log_that_becomes_writable_is_used_again(tmp_path: Path) -> None:
    output = io.StringIO()
    folder = tmp_path / "log"
    log = ProtectionLog(folder, output)
    log.write("DeletionProtection", "Service", "web", "first", "jane")
    folder.mkdir()
    log.write("DeletionProtection", "Service", "web", "second", "jane")
    assert "first" in output.getvalue()
    assert "second" not in output.getvalue()
    assert json.loads((folder / "protection.log").read_text())["Name"] == "second"


@pytest.mark.behaviour("DP-41")
def test_a_full_protection_log_is_rotated_once(tmp_path: Path) -> None:
    logs = [ProtectionLog(tmp_path, max_bytes=200) for _ in range(2)]  # two processes of a replica
    for number in range(8):
        logs[number % 2].write("DeletionProtection", "Namespace", "", f"ns-{number}", "jane")
    now, before = ((tmp_path / name).read_text("utf-8").splitlines() for name in ("protection.log", "protection.log.1"))
    # With lines of about 90 bytes, a file is full after the third.
    assert [json.loads(text)["Name"] for text in (*before, *now)] == [f"ns-{number}" for number in range(3, 8)]


def test_a_log_rotated_by_another_process_is_left_alone(tmp_path: Path) -> None:
    log = ProtectionLog(tmp_path, max_bytes=1)
    log.write("DeletionProtection", "Namespace", "", "first", "jane")
    with (tmp_path / "protection.log.1").open("ab") as late:  # opened before the rotation
        log.path.write_text("new\n")
        log._put_aside(late.fileno())
    assert log.path.read_text("utf-8") == "new\n"


def test_forged_objects_and_users_add_no_metrics() -> None:
    counters = RefusalCounters(registry := CollectorRegistry())
    for number in range(3_000):
        counters.count("Namespace", "", f"made-up-{number}", f"user-{number}" * 1_000)
        counters.count("CloneSet", "shop", f"web-{number}" * 100_000 if number % 1_000 == 999 else "web", "alice")
    lines = exposed(registry)
    assert len(lines) < 600
    assert sum(map(len, lines)) < 500_000
    assert sum(float(line.rpartition(" ")[2]) for line in lines if not line.startswith("#")) == 6_000
    assert any('name="other"' in line and 'username="other"' in line for line in lines)
