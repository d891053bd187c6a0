"""Records of refusals are bounded, also for forged Pods and users."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import Mock

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from app.features.podunavailablebudget.feature import MESSAGE, RefusalRecord, refusal_counters
from app.framework.denial_log import ProtectionLog
from app.kube.events import EventRecorder
from app.kube.objects import Pod, decode_pod
from app.manager.shared_state import families, text


def made_up(name: str) -> Pod:
    return decode_pod(msgspec.json.encode({"metadata": {"name": name, "namespace": "shop"}}))


@pytest.mark.behaviour("PUB-69")
def test_forged_pods_and_users_add_no_metrics_or_logs(tmp_path: Path) -> None:
    registry, events = CollectorRegistry(), Mock(EventRecorder)
    record = RefusalRecord(refusal_counters(registry), ProtectionLog(tmp_path), events)
    for number in range(3_000):
        long = 100_000 if number % 1_000 == 999 else 1
        record(made_up(f"web-{number}" * long), f"user-{number}" * long)
    lines = [line for line in text(families(registry)).decode().splitlines() if not line.startswith("#")]
    assert len(lines) < 600
    assert sum(map(len, lines)) < 500_000
    assert sum(float(line.rpartition(" ")[2]) for line in lines) == 3_000
    assert max(map(len, (tmp_path / "protection.log").read_bytes().splitlines())) < 2_000
    regarding, *said = events.event.call_args_list[0].args
    assert (regarding.name, *said) == ("web-0", "Warning", "PubPreventPodDeletion", MESSAGE)
