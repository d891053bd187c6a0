"""A replica's processes against a real API server: killed, stopped, without Lease and certificates."""

import contextlib
import json
import os
import re
import signal
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.api import names
from app.kube.reflector import IDLE_SECONDS
from app.manager.features import features
from app.manager.gates import parse_gates
from tests.cluster.controlplane import ControlPlane
from tests.deadline import Deadline
from tests.manager.replicas import AT_ONCE, Replica, election, published, replica
from tests.nightly import NIGHTLY
from tests.scenarios.world import SYSTEM_NAMESPACE, eventually, install

pytestmark = [pytest.mark.controlplane, pytest.mark.alone]
WEBHOOK_PROCESSES = ("webhook-0", "webhook-1")


@pytest.fixture(scope="module")
def control_plane() -> Iterator[ControlPlane]:
    """A control plane without other webhooks."""
    with ControlPlane() as started:
        install(started)
        yield started


@pytest.mark.behaviour("MGR-4", "MGR-60", "MGR-128")
def test_dead_or_hanging_processes_are_restarted_while_others_answer(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    with replica(control_plane, tmp_path, "--process-hang-timeout=2s") as one:
        eventually(lambda: len(one.processes()) == 3, "all processes are ready")
        eventually(one.leads, "it leads")
        eventually(lambda: "Pods" in one.page(one.health, "debug/caches"), "its controllers have their caches")
        caches = one.page(one.health, "debug/caches")
        assert re.findall(r"^(\S+) +Pods ", caches, re.M) == ["reconciler"]
        assert re.findall(r"^(\S+) +SidecarSets ", caches, re.M) == [*WEBHOOK_PROCESSES, "reconciler"]
        controllers = re.findall(r"^(\S+): \d+ waiting", one.page(one.health, "debug/queues"), re.M)
        enabled = parse_gates("").enabled
        assert sorted(controllers) == sorted(part.name for one in features() for part in one.running(enabled))
        bundle = published(control_plane)
        for _ in range(20):
            one.review(bundle)
        answered = 'controller_runtime_webhook_requests_total{code="200",webhook="/mutate-pod"}'
        eventually(lambda: one.metric(answered) == 20, "all processes are counted")

        killed = one.signal("webhook-0", signal.SIGKILL)
        for _ in range(20):
            one.review(bundle)  # both listen on one socket
        assert one.ready()
        eventually(lambda: one.processes().get("webhook-0", killed) != killed, "it is back")
        eventually(lambda: one.metric(answered) == 40, "no count is lost with the process")

        stopped = one.signal("webhook-1", signal.SIGSTOP)
        eventually(lambda: one.processes().get("webhook-1", stopped) != stopped, "what hung was started again", 20)
        assert one.metric('kruise_process_hangs_total{process="webhook-1"}') == 1
        assert one.metric('kruise_process_restarts_total{process="webhook-0"}') == 1
        one.review(bundle)

        hung = one.signal("reconciler", signal.SIGSTOP)
        for _ in range(20):
            one.review(bundle)
        with contextlib.suppress(ProcessLookupError):
            os.kill(hung, signal.SIGKILL)
        one.review(bundle)
        assert one.ready()
        eventually(lambda: "reconciler" in one.processes(), "it is back")
    assert one.process.returncode == 0, one.log.read_text()[-2000:]
    assert "Traceback" not in one.log.read_text()


def test_no_process_outlives_its_supervisor(control_plane: ControlPlane, tmp_path: Path) -> None:
    with replica(control_plane, tmp_path) as one:
        eventually(lambda: len(one.processes()) == 3, "all processes are ready")
        children = one.processes().values()
        one.process.kill()
        one.process.wait()
        eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in children), "all are gone", 15)


@pytest.mark.behaviour("MGR-23", "MGR-24", "MGR-124")
def test_the_lease_moves_on_release_or_death_of_its_holder(control_plane: ControlPlane, tmp_path: Path) -> None:
    flags = election(8, name="moving")
    with replica(control_plane, tmp_path, *flags, by_service=True) as first:
        eventually(first.leads, "the first leads")
        with replica(control_plane, tmp_path, *flags, by_service=True) as second:
            eventually(lambda: "reconciler" in second.processes(), "the second waits for the Lease")
            assert not second.leads()
            assert second.ready()  # MGR-22: reviews do not depend on the Lease
            first.process.terminate()
            eventually(second.leads, "the second leads before the Lease could have run out", 6)
            first.process.wait(20)
            assert first.process.returncode == 0

            holder = second.signal("reconciler", signal.SIGKILL)
            eventually(lambda: second.processes().get("reconciler", holder) != holder, "it is back")
            eventually(second.leads, "it leads again once the Lease has run out", 30)
    events = control_plane.kubectl("get", "events", "-n", SYSTEM_NAMESPACE, "-o", "json").stdout
    assert "became leader" in events


@pytest.mark.behaviour("MGR-23")
def test_losing_the_lease_ends_the_reconciler_only(control_plane: ControlPlane, tmp_path: Path) -> None:
    with replica(control_plane, tmp_path, *election(name="lost")) as one:
        eventually(one.leads, "it leads")
        before = one.processes()
        spec = {"spec": {"holderIdentity": "somebody else", "leaseDurationSeconds": 5}}
        patch = ["patch", "lease", "lost", "-n", SYSTEM_NAMESPACE, "--type=merge", "-p", json.dumps(spec)]
        control_plane.kubectl(*patch)
        eventually(lambda: one.processes().get("reconciler", 0) not in (0, before["reconciler"]), "it restarts", 20)
        after = one.processes()
        assert [after[name] for name in WEBHOOK_PROCESSES] == [before[name] for name in WEBHOOK_PROCESSES]
        assert one.ready()
        eventually(one.leads, "it leads again when the other's time is over", 20)
    assert "Traceback" not in one.log.read_text()


@pytest.mark.skipif(not NIGHTLY, reason="takes four minutes")
def test_writes_lost_in_a_restore_from_a_backup_are_repeated(control_plane: ControlPlane, tmp_path: Path) -> None:
    """The reconciler waits for its writes to appear in its caches. After a restore of etcd they never would."""
    pods = "/api/v1/namespaces/default/pods"
    gate = {"conditionType": names.KRUISE_POD_READY}
    spec = {"containers": [{"name": "main", "image": "nginx:1"}], "readinessGates": [gate]}

    def marked() -> bool:
        conditions = control_plane.request("GET", f"{pods}/p")[1]["status"].get("conditions", [])
        return any(one["type"] == names.KRUISE_POD_READY for one in conditions)

    # The managers of earlier tests have left webhooks that nobody answers.
    control_plane.kubectl("delete", "mutatingwebhookconfigurations,validatingwebhookconfigurations", "--all")
    assert control_plane.request("POST", pods, {"metadata": {"name": "p"}, "spec": spec})[0] == 201
    control_plane.save_storage(tmp_path / "backup")
    eventually(control_plane.is_ready, "the API server is back")
    with replica(control_plane, tmp_path) as one:
        eventually(marked, "the Pod has its condition", 30)
        before = one.processes()["reconciler"]
        for number in range(200):
            control_plane.request("POST", pods.replace("pods", "configmaps"), {"metadata": {"name": f"later-{number}"}})
        assert control_plane.request("PATCH", f"{pods}/p", {"metadata": {"labels": {"version": "newest"}}})[0] == 200
        control_plane.restore_storage(tmp_path / "backup")
        eventually(control_plane.is_ready, "the API server is back")
        eventually(marked, "the Pod has its condition again", IDLE_SECONDS + 60)
        assert one.processes()["reconciler"] != before
    # On a slow machine the Lease is lost before the versions are seen to be older; both start a new process.
    log = one.log.read_text()
    assert "restored from a backup" in log or "exiting: " in log
    assert "Traceback" not in log


@pytest.mark.behaviour("MGR-36", "MGR-123")
def test_replacing_the_authority_fails_no_review(control_plane: ControlPlane, tmp_path: Path) -> None:
    with replica(control_plane, tmp_path, "--certificate-rotation-step=3s") as one:
        # Managers of earlier tests may have left CAs that are being phased out.
        eventually(lambda: published(control_plane).count(b"BEGIN") == 1, "only one authority is trusted", 30)
        old = published(control_plane)
        bundles = [old]
        # Users delete the Secret to request new keys.
        control_plane.kubectl("delete", "secret", "kruise-webhook-certs", "-n", SYSTEM_NAMESPACE)
        deadline = Deadline(60)
        while len(bundles) < 4 and not deadline.passed():
            one.review(bundles[-1])  # an API server that does not have the newest bundle yet
            now = published(control_plane)
            one.review(now)
            if now != bundles[-1]:
                bundles.append(now)
        first, announced, switched, last = bundles
        assert first.count(b"BEGIN") == last.count(b"BEGIN") == 1
        assert announced.count(b"BEGIN") == switched.count(b"BEGIN") == 2
        assert old.strip() in announced
        assert old.strip() not in last
        eventually(lambda: _refused(one, old), "the old authority no longer vouches for it", AT_ONCE)
        assert one.log.read_text().count("serving a new certificate") == len(WEBHOOK_PROCESSES)


def _refused(one: Replica, ca_bundle: bytes) -> bool:
    try:
        one.review(ca_bundle)
    except urllib.error.URLError as error:
        return isinstance(error.reason, ssl.SSLCertVerificationError)
    return False
