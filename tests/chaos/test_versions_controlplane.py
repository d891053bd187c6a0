"""Upgrade and downgrade between our own versions, with an unfinished operation of every kind.

The previous version runs first, from its wheel in a separate environment; then both versions run, then only this one,
and back. ``PYKRUISE_PREVIOUS`` selects another commit as the previous version.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from deploy.release.__main__ import write_packages, write_source
from tests.chaos.faults import HOSTS, Site, create_sidecarset
from tests.chaos.load import Outcome, pod_creations
from tests.cluster.controlplane import ControlPlane
from tests.manager.replicas import configuration
from tests.scenarios import test_ephemeraljob, test_sidecarset, test_united_deployment, test_workloadspread
from tests.scenarios.test_daemonset import daemon_set
from tests.scenarios.test_jobs import broadcast, cron
from tests.scenarios.test_podunavailablebudget import FORBIDDEN, budget, by_target
from tests.scenarios.test_resource_distribution import CONFIG_MAP, content
from tests.scenarios.test_sidecarset import deployment
from tests.scenarios.test_sidecarset_rollout import with_strategy
from tests.scenarios.world import ROOT, World, eventually, install, own_namespace, running

pytestmark = [pytest.mark.controlplane, pytest.mark.alone]

#: A candidate of 0.1.0, until commits have release tags.
CANDIDATE: Final = "c9de9fe6dd6939b4a946e9c1b535a57009e041a3"
GATES: Final = "--feature-gates=ResourceDistributionGate=true,ImagePullJobGate=true"
OLD, NEW = HOSTS
#: Resources that change with every Pod and job, and that nodes write.
OF_NODES: Final = ("nodeimages", "nodepodprobes")
EVERY_SECONDS: Final = 20

Step = Callable[[World], object]


@dataclass(frozen=True)
class Release:
    """A version: its source tree, and the Python environment that its wheel is installed in."""

    source: Path
    python: Path


@pytest.fixture(scope="module")
def previous(tmp_path_factory: pytest.TempPathFactory) -> Release:
    """Install the previous version as users do: the locked dependencies, then the wheel."""
    folder = tmp_path_factory.mktemp("previous")
    source, output, environment = folder / "source", folder / "output", folder / "environment"
    output.mkdir()
    wheel = write_packages(output, folder, source, write_source(source, previous_commit()))
    subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    python = environment / "bin" / "python"
    pip = [python, "-m", "pip", "--disable-pip-version-check", "--quiet", "install"]
    for what in (["--require-hashes", f"--requirement={source}/requirements.lock"], ["--no-deps", "--no-index", wheel]):
        subprocess.run([*pip, *what], check=True)
    return Release(source, python)


def previous_commit() -> str:
    if named := os.environ.get("PYKRUISE_PREVIOUS"):
        return named
    newest = ["git", "describe", "--tags", "--match=v*", "--abbrev=0", "HEAD^"]
    return subprocess.run(newest, cwd=ROOT, capture_output=True, text=True).stdout.strip() or CANDIDATE


@dataclass(frozen=True)
class Case:
    """An operation that is started, stopped halfway, and continued later."""

    manifest: str
    middle: Step
    resume: Step
    finished: Step
    #: Once ``ready`` holds, ``begin`` brings the operation halfway.
    ready: Step = bool
    begin: Step = bool


def patch(kind: str, name: str, **spec: Any) -> Step:
    """Return a merge patch of the spec; ``$ns`` in the name stands for the namespace."""

    def send(world: World) -> object:
        named = (kind, name.replace("$ns", world.namespace), "-n", world.namespace)
        return world.kubectl("patch", *named, "--type=merge", "-p", json.dumps({"spec": spec}))

    return send


def image(kind: str, name: str, *, container: str = "main", path: tuple[str, ...] = ()) -> Step:
    """Return a change of the image in the Pod template at this path of the spec."""
    spec: dict[str, Any] = {"template": {"spec": {"containers": [{"name": container, "image": "nginx:1.26"}]}}}
    for part in reversed(path):
        spec = {part: spec}
    return patch(kind, name, **spec)


def status(kind: str, name: str, **wanted: Any) -> Step:
    """Return a check that the status is current and has these values; ``$ns`` stands for the namespace."""

    def matches(world: World) -> bool:
        found = world.get(kind, name.replace("$ns", world.namespace))
        shown = found.get("status", {})
        assert shown.get("observedGeneration", found["metadata"]["generation"]) == found["metadata"]["generation"]
        assert {key: shown.get(key, 0) for key in wanted} == wanted, shown
        return True

    return matches


def kubectl(*arguments: str) -> Step:
    return lambda world: world.kubectl(*arguments, "-n", world.namespace)


def labels(world: World, name: str) -> dict[str, str]:
    found: dict[str, str] = world.get("pod", name)["metadata"]["labels"]
    return found


def pods(world: World, app: str) -> list[dict[str, Any]]:
    return world.list("pods", "-l", f"app={app}")


def open_shop(world: World) -> None:
    """Create five Pods, one of which becomes unready."""
    kubectl("scale", "cloneset", "shop", "--replicas=5")(world)
    eventually(partial(status("pub", "shop", currentAvailable=5, unavailableAllowed=1), world), "five are available")
    name = pods(world, "shop")[0]["metadata"]["name"]
    world.kubectl("annotate", "pod", name, "-n", world.namespace, "sandbox.pykruise.io/unready=main")


def is_protected(world: World) -> bool:
    """Return whether the budget denies the deletion of another Pod."""
    name = pods(world, "shop")[1]["metadata"]["name"]
    refused = world.kubectl("delete", "pod", name, "-n", world.namespace, "--dry-run=server", check=False)
    assert FORBIDDEN in refused.stderr, refused
    return True


def spread(world: World) -> dict[str, int]:
    return {name: replicas for name, (replicas, _) in test_workloadspread.status(world).items()}


WORKLOAD = """
apiVersion: apps.kruise.io/{version}
kind: {kind}
metadata: {{name: {name}, annotations: {{{annotations}}}}}
spec:
  replicas: {replicas}
  {more}
  selector: {{matchLabels: {{app: {name}}}}}
  template:
    metadata: {{labels: {{app: {name}, hold: "true"}}}}
    spec:
      readinessGates: [{{conditionType: InPlaceUpdateReady}}]
      terminationGracePeriodSeconds: 1
      containers: [{{name: main, image: "nginx:1.25"}}]
"""
clone_set = partial(WORKLOAD.format, kind="CloneSet", version="v1alpha1", annotations="")
POD = """
apiVersion: v1
kind: Pod
metadata: {{name: {name}, labels: {{app: {name}}}}}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{{name: main, image: "nginx:1.25"}}, {{name: side, image: "busybox:1.36", command: [sleep, "100000"]}}]
"""
REQUEST = """
apiVersion: apps.kruise.io/v1alpha1
kind: ContainerRecreateRequest
metadata: {name: again}
spec:
  podName: restarted
  containers: [{name: main}]
  strategy: {minStartedSeconds: 3600}
"""
MARKER = """
apiVersion: apps.kruise.io/v1alpha1
kind: PodProbeMarker
metadata: {name: idle}
spec:
  selector: {matchLabels: {app: probed}}
  probes:
  - name: ok
    containerName: side
    probe: {exec: {command: ["COMMAND"]}, periodSeconds: 1}
    markerPolicy: [{state: Succeeded, labels: {idle: "yes"}}, {state: Failed, labels: {idle: "no"}}]
"""
PULL = """
apiVersion: apps.kruise.io/v1alpha1
kind: ImagePullJob
metadata: {name: warm}
spec:
  image: registry.invalid/$ns:1
  parallelism: 1
  pullPolicy: {backoffLimit: 1000}
  completionPolicy: {type: Always}
"""
SIDECARS = with_strategy(test_sidecarset.SIDECARSET, "{partition: 2}")
SHOP = test_workloadspread.CLONE_SET.replace("replicas: 5", "replicas: 0")
BUDGET = budget(f"{by_target('CloneSet')}, maxUnavailable: 1")
UNITED = (test_united_deployment.UNITED % ("cloneSetTemplate", "")).replace("app: web", "app: united")
CLONE_SETS, STATEFUL_SETS = "clonesets.apps.kruise.io", "statefulsets.apps.kruise.io"
DAEMON_SETS, UNITED_DEPLOYMENTS = "daemonsets.apps.kruise.io", "uniteddeployments.apps.kruise.io"
CASES: Final = {
    "CloneSet": Case(
        clone_set(
            name="web-site",
            replicas=4,
            more="updateStrategy: {type: InPlaceIfPossible, partition: 2, maxUnavailable: 1}",
        ),
        ready=status(CLONE_SETS, "web-site", readyReplicas=4),
        begin=image(CLONE_SETS, "web-site"),
        middle=status(CLONE_SETS, "web-site", updatedReadyReplicas=2, readyReplicas=4),
        resume=patch(CLONE_SETS, "web-site", updateStrategy={"rollingUpdate": {"partition": 0}}),
        finished=status(CLONE_SETS, "web-site", updatedReadyReplicas=4, readyReplicas=4),
    ),
    "CloneSet with a hook": Case(
        clone_set(
            name="held",
            replicas=1,
            more="updateStrategy: {type: InPlaceIfPossible, maxUnavailable: 1}\n"
            '  lifecycle: {inPlaceUpdate: {labelsHandler: {hold: "true"}}}',
        ),
        ready=status(CLONE_SETS, "held", readyReplicas=1),
        begin=image(CLONE_SETS, "held"),
        middle=lambda world: (
            [one["metadata"]["labels"]["lifecycle.apps.kruise.io/state"] for one in pods(world, "held")]
            == ["PreparingUpdate"]
        ),
        resume=kubectl("label", "pod", "-l", "app=held", "hold-"),
        finished=status(CLONE_SETS, "held", updatedReadyReplicas=1, readyReplicas=1),
    ),
    "Advanced StatefulSet and PersistentPodState": Case(
        WORKLOAD.format(
            version="v1beta1",
            kind="StatefulSet",
            name="db",
            annotations='kruise.io/auto-generate-persistent-pod-state: "true", '
            "kruise.io/preferred-persistent-topology: kubernetes.io/hostname",
            replicas=3,
            more="serviceName: db\n"
            "  updateStrategy: {rollingUpdate: {podUpdatePolicy: InPlaceIfPossible, partition: 2}}",
        ),
        ready=lambda world: (
            status(STATEFUL_SETS, "db", readyReplicas=3)(world)
            and len(world.get("persistentpodstates.apps.kruise.io", "db")["status"]["podStates"]) == 3
        ),
        begin=image(STATEFUL_SETS, "db"),
        middle=status(STATEFUL_SETS, "db", updatedReplicas=1, readyReplicas=3),
        resume=patch(STATEFUL_SETS, "db", updateStrategy={"rollingUpdate": {"partition": 0}}),
        finished=status(STATEFUL_SETS, "db", updatedReplicas=3, readyReplicas=3),
    ),
    "DaemonSet": Case(
        daemon_set("v1alpha1", partition=2),
        ready=status(DAEMON_SETS, "ds", numberReady=3),
        begin=image(DAEMON_SETS, "ds"),
        middle=status(DAEMON_SETS, "ds", numberReady=3, updatedNumberScheduled=1),
        resume=patch(DAEMON_SETS, "ds", updateStrategy={"rollingUpdate": {"partition": 0}}),
        finished=status(DAEMON_SETS, "ds", numberReady=3, updatedNumberScheduled=3),
    ),
    "SidecarSet": Case(
        f"{SIDECARS}---{deployment(4)}",
        ready=status("sidecarset", "$ns", updatedReadyPods=4),
        begin=lambda world: world.apply(SIDECARS.replace("busybox:1.36", "busybox:1.35")),
        middle=status("sidecarset", "$ns", matchedPods=4, readyPods=4, updatedReadyPods=2),
        resume=patch("sidecarset", "$ns", updateStrategy={"partition": 0}),
        finished=status("sidecarset", "$ns", matchedPods=4, readyPods=4, updatedReadyPods=4),
    ),
    "WorkloadSpread and PodUnavailableBudget": Case(
        f"{SHOP}---{test_workloadspread.SPREAD}---{BUDGET}",
        ready=lambda world: "observedGeneration" in world.get("workloadspread", "shop")["status"],
        begin=open_shop,
        middle=lambda world: (
            status("pub", "shop", currentAvailable=4)(world)
            and is_protected(world)
            and spread(world) == {"base": 3, "burst": 2}
        ),
        resume=lambda world: (
            kubectl("annotate", "pod", "-l", "app=shop", "sandbox.pykruise.io/unready-")(world),
            kubectl("scale", "cloneset", "shop", "--replicas=7")(world),
        ),
        finished=lambda world: (
            status("pub", "shop", currentAvailable=7, totalReplicas=7)(world)
            and spread(world) == {"base": 3, "burst": 4}
        ),
    ),
    "BroadcastJob": Case(
        broadcast("everywhere", sleep=100_000, parallelism="1"),
        middle=status("broadcastjob", "everywhere", active=1, desired=3),
        resume=patch("broadcastjob", "everywhere", parallelism=3),
        finished=status("broadcastjob", "everywhere", active=3, desired=3),
    ),
    "ImagePullJob": Case(
        PULL,
        middle=status("imagepulljob", "warm", active=1, desired=3),
        resume=patch("imagepulljob", "warm", parallelism=3),
        finished=status("imagepulljob", "warm", active=3, desired=3),
    ),
    "ContainerRecreateRequest": Case(
        POD.format(name="restarted"),
        ready=lambda world: world.pod_is_ready("restarted"),
        begin=lambda world: world.apply(REQUEST),
        middle=lambda world: (
            status("containerrecreaterequest", "again", phase="Recreating")(world)
            and [one["restartCount"] for one in world.get("pod", "restarted")["status"]["containerStatuses"]] == [1, 0]
        ),
        resume=kubectl("delete", "pod", "restarted"),
        finished=status("containerrecreaterequest", "again", phase="Completed"),
    ),
    "PodProbeMarker and EphemeralJob": Case(
        f"{POD.format(name='probed')}---{MARKER.replace('COMMAND', 'true')}",
        ready=lambda world: labels(world, "probed")["idle"] == "yes",
        begin=lambda world: world.apply(test_ephemeraljob.JOB.replace("app: web", "app: probed")),
        middle=status("ephemeraljob", "look", match=1, running=1),
        resume=lambda world: (
            kubectl("delete", "ephemeraljob", "look")(world),
            world.apply(MARKER.replace("COMMAND", "false")),
        ),
        finished=lambda world: labels(world, "probed")["idle"] == "no",
    ),
    "ResourceDistribution": Case(
        CONFIG_MAP,
        middle=lambda world: content(world, "") == {"level": "info"},
        resume=lambda world: world.apply(CONFIG_MAP.replace("info", "debug")),
        finished=lambda world: content(world, "") == {"level": "debug"},
    ),
    "UnitedDeployment": Case(
        UNITED + "  updateStrategy: {manualUpdate: {partitions: {two: 9}}}\n",
        ready=status(UNITED_DEPLOYMENTS, "web", readyReplicas=4, updatedReadyReplicas=4),
        begin=image(UNITED_DEPLOYMENTS, "web", path=("template", "cloneSetTemplate", "spec")),
        middle=status(UNITED_DEPLOYMENTS, "web", readyReplicas=4, updatedReadyReplicas=1),
        resume=patch(UNITED_DEPLOYMENTS, "web", updateStrategy={"manualUpdate": {"partitions": {"two": 0}}}),
        finished=status(UNITED_DEPLOYMENTS, "web", readyReplicas=4, updatedReadyReplicas=4),
    ),
}
#: Pods with this label are updated in place only.
UPDATED_IN_PLACE: Final = ("web-site", "held", "db", "nginx")


def each(world: World, step: str, what: str) -> None:
    for name, case in CASES.items():
        eventually(partial(getattr(case, step), world), f"{name} {what}", 120)


def start(world: World) -> None:
    """Bring all operations halfway."""
    for case in CASES.values():
        world.apply(case.manifest)
    each(world, "ready", "is ready")
    for case in CASES.values():
        case.begin(world)
    each(world, "middle", "is in the middle")


def resume(world: World) -> None:
    """Complete all operations."""
    before = in_place(world)
    for case in CASES.values():
        case.resume(world)
    each(world, "finished", "has continued")
    assert in_place(world) == before


def in_place(world: World) -> dict[str, set[str]]:
    """Return the uids of the Pods that are updated in place, by label."""
    return {app: {pod["metadata"]["uid"] for pod in pods(world, app)} for app in UPDATED_IN_PLACE}


def snapshot(control_plane: ControlPlane, world: World) -> dict[str, Any]:
    """Return all objects of the namespace that no version may change by itself, in all served versions."""
    paths = ["/api/v1/pods", "/api/v1/configmaps", "/apis/apps/v1/controllerrevisions"]
    for definition in listed(control_plane, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"):
        spec = definition["spec"]
        served = [version["name"] for version in spec["versions"] if version["served"]]
        paths += [f"/apis/{spec['group']}/{version}/{spec['names']['plural']}" for version in served]
    found = {}
    for path in paths:
        items = listed(control_plane, path)
        for item in items if not path.endswith(OF_NODES) else ():
            metadata = item["metadata"]
            if metadata.get("namespace") == world.namespace or metadata["name"].startswith(world.namespace):
                found[f"{path} {metadata['name']}"] = lasting(item)
    return found


def listed(control_plane: ControlPlane, path: str) -> list[dict[str, Any]]:
    def answer() -> tuple[int, Any] | None:
        found = control_plane.request("GET", path)
        # Clients retry: the API server reinitializes the storage of a changed CRD.
        return None if found[0] == 429 else found

    code, body = eventually(answer, f"{path} is served")
    assert code == 200, f"{path}: {body}"
    items: list[dict[str, Any]] = body["items"]
    return items


def lasting(item: dict[str, Any]) -> dict[str, Any]:
    """Return the object without its status, except container restarts."""
    metadata = {
        key: value for key, value in item["metadata"].items() if key not in ("managedFields", "resourceVersion")
    }
    statuses = item.get("status", {}).get("containerStatuses", [])
    restarts = {one["name"]: one["restartCount"] for one in statuses}
    return {**item, "metadata": metadata, "status": restarts}


def differences(before: Any, after: Any, path: str = "") -> Iterator[str]:
    if isinstance(before, dict) and isinstance(after, dict):
        for key in sorted(before.keys() | after.keys()):
            yield from differences(before.get(key), after.get(key), f"{path}.{key}" if path else key)
    elif before != after:
        yield f"{path}: {before} → {after}"


def install_definitions(control_plane: ControlPlane, release: Path) -> None:
    """Apply permissions and CRDs as Helm does, but keep the conversion, which the manager owns."""
    for name in ("rbac.yaml", "rbac-gates"):
        control_plane.kubectl("apply", "-f", str(release / "deploy" / name))
    for path in sorted((release / "deploy" / "crds").iterdir()):
        definition = yaml.safe_load(path.read_text())
        name, spec = definition["metadata"]["name"], definition["spec"]
        body = {"spec": {key: value for key, value in spec.items() if key != "conversion"}}
        code, answer = control_plane.request(
            "PATCH", f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}", body
        )
        assert code == 200, answer


def runs(world: World) -> list[int]:
    """Return the times at which the AdvancedCronJob started jobs, in seconds since 1970."""
    return sorted(int(job["metadata"]["name"].removeprefix("tick-")) for job in world.list("broadcastjobs"))


def hand_over(site: Site, leaving: str, coming: str, python: Path | None, untouched: Callable[[str], None]) -> None:
    """Start a replica of the other version alongside the running one, then stop the latter."""
    site.start(coming, python)
    site.wait_until_ready()
    untouched("both versions run")
    written = generations(site.control_plane)
    site.stop(leaving)
    eventually(lambda: site.leader() == coming, "the other version leads")
    assert max(new - old for old, new in zip(written, generations(site.control_plane), strict=True)) <= 1


def generations(control_plane: ControlPlane) -> list[int]:
    """Return the generations of the webhook configurations, which count their writes."""
    found = [configuration(control_plane, kind) for kind in ("mutating", "validating")]
    return [one["metadata"]["generation"] for one in found if one is not None]


def test_upgrades_and_downgrades_restart_no_container_and_controllers_continue(
    previous: Release, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        control_plane = stack.enter_context(ControlPlane())
        install(control_plane, root=previous.source)
        nodes = ["app.sandbox.nodes", f"--kubeconfig={control_plane.kubeconfig}", "--bind", "--agents"]
        stack.enter_context(running(nodes, tmp_path / "nodes.log"))
        site = Site(control_plane, tmp_path, [GATES])
        stack.enter_context(site.behind_one_address())
        site.start(OLD, previous.python)
        site.wait_until_ready()
        create_sidecarset(control_plane)
        first, second, ticking = (
            stack.enter_context(own_namespace(control_plane, real_containers=False, autoscales=False)) for _ in range(3)
        )
        ticking.apply(
            cron("tick", "broadcastJobTemplate", f"@every {EVERY_SECONDS}s") + "  successfulJobsHistoryLimit: 100\n"
        )
        start(first)
        start(second)
        seen = {world: snapshot(control_plane, world) for world in (first, second)}

        def untouched(world: World, when: str) -> None:
            changed = list(differences(seen[world], snapshot(control_plane, world)))
            assert not changed, f"{when}:\n" + "\n".join(changed)

        def schedule_continues() -> None:
            last = runs(ticking)[-1]
            eventually(lambda: runs(ticking)[-1] > last, "the next job is started", 120)

        def both_untouched(when: str) -> None:
            for world in (first, second):
                untouched(world, when)
            assert is_protected(second)

        with pod_creations(control_plane, 10, dry_run=True) as creations:
            install_definitions(control_plane, ROOT)
            both_untouched("the new definitions are installed")
            hand_over(site, OLD, NEW, None, both_untouched)
            resume(first)
            schedule_continues()
            untouched(second, "the new version has worked")
            each(second, "middle", "is still in the middle")
            seen[first] = snapshot(control_plane, first)

            install_definitions(control_plane, previous.source)
            both_untouched("the old definitions are installed")
            hand_over(site, NEW, OLD, previous.python, both_untouched)
            resume(second)
            schedule_continues()
            untouched(first, "the old version has worked")
            each(first, "finished", "stays as it was")
        answers = {outcome: creations.count(outcome) for outcome in Outcome}
        assert answers == dict.fromkeys(Outcome, 0) | {Outcome.INJECTED: len(creations.attempts)}, creations.messages()
        assert {(later - earlier) % EVERY_SECONDS for earlier, later in pairwise(runs(ticking))} == {0}
