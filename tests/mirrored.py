"""Where the tests of a module are: in ``tests/<same path>/test_<name>.py``, or where this table says.

A row says why its modules have no file of their own. Who adds a module elsewhere adds a test file of its name with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

from tests.behaviours import ROOT


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """Modules below app/, by patterns, and the file or folder below tests/ that is about them."""

    tests: str
    why: str
    modules: tuple[str, ...]


def _row(tests: str, why: str, modules: str) -> Elsewhere:
    return Elsewhere(tests, why, tuple(modules.split()))


_DECLARED: Final = "a declaration: what is derived from it is tested"
_TYPES: Final = "types, constants or protocols alone: tested where they are used"
_BY_RECONCILE: Final = "a step of the shell: it is run by the controller on the sandbox's API server"
_BY_WEBHOOK: Final = "run by the webhook, with objects as users write them"
_BY_COMMAND: Final = "run by the command, as users type it"

TABLE: Final = (
    # ---- whatever the slice
    _row("manager/test_slices.py", _DECLARED, "*/slice.py slices/*.py"),
    _row("api/test_gomodel.py", _DECLARED, "api/*/types.py api/*/gospec.py api/go*.py"),
    _row("api/test_examples.py", _DECLARED, "api/*/definition.py api/kind.py api/registry.py api/handlers.py"),
    _row("dashboard/test_pages.py", "a section of the page, tested as a page", "*/dashboard.py dashboard/*.py"),
    # ---- folders whose tests are by what users or clients do
    _row("sandbox", "a cluster: tested by requests, and by what kubectl sees", "sandbox/*"),
    _row("daemon", "an agent on a simulated runtime: tested by what it is asked to do", "daemon/*"),
    _row("cli", _BY_COMMAND, "cli/*"),
    _row("client", "the Python client: tested by programs that use it", "client/*"),
    _row("manager", "processes, flags and pages: tested as the program that runs", "manager/*"),
    _row("admission/test_server.py", "the HTTP service: tested by requests", "admission/*"),
    _row("api", "tested through the webhooks, and against recorded objects", "api/*"),
    _row("certs/test_context.py", "sources of certificates: tested on a real socket", "certs/*"),
    _row("http/test_hostile_clients.py", "tested by connections", "kube/callers.py"),
    _row("workloads/cloneset/test_env_from_metadata.py", "tested by updates in place", "pods/agents.py"),
    # ---- placement
    _row("placement/workloadspread", "tested by what happens to Pods in subsets", "placement/workloadspread/*"),
    _row("placement/persistentpodstate", "tested by what is recorded and injected", "placement/persistentpodstate/*"),
    # ---- operations
    _row("operations/imagepull", "tested by jobs, lists and nodes", "operations/imagepull/*"),
    _row("operations/podprobe/test_controllers.py", _BY_RECONCILE, "operations/podprobe/*"),
    _row("operations/containerrecreate/test_reconcile.py", _BY_RECONCILE, "operations/containerrecreate/*"),
    _row("operations/resourcedistribution/test_reconcile.py", _BY_RECONCILE, "operations/resourcedistribution/*.py"),
    # ---- protection
    _row("protection/deletion", _BY_WEBHOOK, "protection/deletion/admission.py protection/log.py"),
    _row("protection/podunavailablebudget", "tested by what a budget lets go", "protection/podunavailablebudget/*"),
    # ---- sidecars
    _row("sidecars/launchpriority/test_step.py", "tested by Pods as they are admitted", "sidecars/launchpriority/*"),
    _row("sidecars/terminator/test_reconcile.py", _TYPES, "sidecars/terminator/objects.py"),
    _row(
        "sidecars/sidecarset/test_injection.py",
        "a part of the injection: tested by Pods as they are admitted",
        "sidecars/sidecarset/*prepared*.py sidecars/sidecarset/hot_upgrade.py sidecars/sidecarset/refusal.py"
        " sidecars/sidecarset/sharing.py sidecars/sidecarset/step.py",
    ),
    _row(
        "sidecars/sidecarset/test_admission.py",
        _BY_WEBHOOK,
        "sidecars/sidecarset/stricter.py sidecars/sidecarset/validation.py",
    ),
    _row("sidecars/sidecarset/test_reconcile.py", _BY_RECONCILE, "sidecars/sidecarset/record.py"),
    _row(
        "sidecars/sidecarset/test_status.py",
        "facts and sums of Pods: tested together, as a status",
        "sidecars/sidecarset/plan/facts.py sidecars/sidecarset/plan/podcounts.py sidecars/sidecarset/plan/records.py"
        " sidecars/sidecarset/plan/view.py",
    ),
    _row(
        "sidecars/sidecarset/plan/test_rollout.py",
        "a part of the roll-out's plan",
        "sidecars/sidecarset/plan/neighbours.py sidecars/sidecarset/plan/obstacles.py"
        " sidecars/sidecarset/plan/update.py sidecars/sidecarset/plan/upgradable.py",
    ),
    _row("sidecars/sidecarset/test_commands.py", _BY_COMMAND, "sidecars/sidecarset/plan/preview.py"),
    _row("sidecars/sidecarset/test_repair.py", "with its shell", "sidecars/sidecarset/plan/repair.py"),
    # ---- workloads
    _row(
        "workloads/cloneset/test_reconcile.py",
        _BY_RECONCILE,
        "workloads/cloneset/controller.py workloads/cloneset/reporting.py workloads/cloneset/scaling.py"
        " workloads/cloneset/snapshot.py workloads/cloneset/state.py workloads/cloneset/updating.py",
    ),
    _row(
        "workloads/cloneset/test_admission.py",
        _BY_WEBHOOK,
        "workloads/cloneset/*validation.py workloads/cloneset/admission_lookups.py",
    ),
    _row(
        "workloads/cloneset/plan/test_preview.py",
        _BY_COMMAND,
        "workloads/cloneset/commands.py workloads/cloneset/looking.py workloads/*explain.py",
    ),
    _row(
        "workloads/cloneset/plan/test_update.py",
        "what the plan of updates asks",
        "workloads/cloneset/plan/limits.py workloads/cloneset/plan/resolved.py workloads/cloneset/plan/rollout.py"
        " workloads/cloneset/plan/settings.py",
    ),
    _row("workloads/cloneset/plan/test_status.py", "a part of the status", "workloads/cloneset/plan/progress.py"),
    _row(
        "workloads/statefulset/test_reconcile.py",
        _BY_RECONCILE,
        "workloads/statefulset/controller.py workloads/statefulset/scaling.py workloads/statefulset/snapshot.py"
        " workloads/statefulset/state.py workloads/statefulset/updating.py workloads/statefulset/wording.py"
        " workloads/statefulset/plan/claims.py workloads/statefulset/plan/creation.py"
        " workloads/statefulset/plan/status.py",
    ),
    _row("workloads/statefulset/test_admission.py", _BY_WEBHOOK, "workloads/statefulset/validation.py"),
    _row("scenarios/test_statefulset_moving.py", _BY_COMMAND, "workloads/statefulset/moving.py"),
    _row(
        "workloads/statefulset/plan/test_update.py",
        "what the plan of updates asks",
        "workloads/statefulset/plan/candidates.py workloads/statefulset/plan/replicas.py"
        " workloads/statefulset/plan/resolved.py workloads/statefulset/plan/settings.py pods/claimgrowth.py",
    ),
    _row("workloads/daemonset", _BY_RECONCILE, "workloads/daemonset/*"),
    _row("workloads/broadcastjob", _BY_RECONCILE, "workloads/broadcastjob/*"),
    _row("workloads/advancedcronjob", _BY_RECONCILE, "workloads/advancedcronjob/*"),
    _row("workloads/ephemeraljob", _BY_RECONCILE, "workloads/ephemeraljob/*"),
    _row("workloads/uniteddeployment", _BY_RECONCILE, "workloads/uniteddeployment/*"),
    _row(
        "workloads/engine/test_reconciler.py",
        "run by each reconcile of each workload",
        "workloads/engine/controllers.py workloads/engine/expectations.py workloads/engine/history.py"
        " workloads/engine/mappers.py workloads/engine/metrics.py workloads/engine/revisions.py"
        " workloads/engine/settings.py workloads/engine/snapshot.py workloads/engine/state.py"
        " workloads/engine/status.py workloads/engine/kind.py",
    ),
    _row(
        "workloads/engine/test_writer.py",
        "what the writer is given, says and returns",
        "workloads/engine/creation.py workloads/engine/outcome.py workloads/engine/wording.py"
        " workloads/engine/initial_conditions.py",
    ),
    _row(
        "workloads/cloneset/plan/test_update.py",
        "what every workload's updates share: tested with CloneSet's",
        "workloads/engine/in_place.py workloads/engine/shares.py workloads/engine/steps.py workloads/engine/updater.py",
    ),
    _row(
        "workloads/cloneset/plan/test_preview.py",
        "what every workload's commands share: tested with CloneSet's",
        "workloads/engine/preview.py workloads/engine/reading.py",
    ),
    _row("cli/test_rollout.py", _BY_COMMAND, "workloads/engine/commands.py workloads/engine/progress.py"),
    _row(
        "workloads/statefulset/test_admission.py",
        "what the webhooks of workloads share: tested with StatefulSet's",
        "workloads/engine/*validation.py workloads/engine/template_checks.py pods/storageclasses.py",
    ),
    _row("workloads/statefulset/test_reconcile.py", _BY_RECONCILE, "workloads/engine/named_claims.py"),
    _row("scenarios/test_statefulset_moving.py", _BY_COMMAND, "workloads/engine/moving.py pods/owned.py"),
    # ---- what slices share of Pods
    _row("workloads/engine/test_writer.py", _TYPES, "pods/budget.py"),
    _row("workloads/engine/test_reconciler.py", _TYPES, "pods/passes.py"),
    _row("admission/test_pod.py", _TYPES, "pods/steps.py pods/guards.py"),
    _row("pods/test_revisions.py", "revisions as they are stored: tested with what they hold", "pods/history.py"),
    _row("pods/inplace/test_start.py", "a part of starting an update in place", "pods/inplace/*"),
    _row("pods/test_readiness_gate.py", "run by the webhook", "pods/readiness/admission.py"),
    _row("sidecars/launchpriority/test_barrier.py", "with the slice that uses it first", "pods/launchpriority.py"),
    _row("placement/persistentpodstate", "with the slices that ask for such workloads", "pods/customworkloads.py"),
    # ---- the toolkit
    _row("admission/test_server.py", _TYPES, "kube/admission.py"),
    _row("kube/test_objects.py", "structs of foreign objects", "kube/objects/*"),
    _row("kube/test_transport.py", "parts of the connection", "kube/plain*.py kube/wire.py"),
    _row("kube/test_client.py", "parts of the client", "kube/listing.py kube/mapping.py kube/concurrently.py"),
    _row("kube/test_reflector.py", "parts of the reflector", "kube/reflector_metrics.py kube/setaside.py"),
    _row("kube/test_statuses.py", "waits after a conflict", "kube/backoff.py"),
    _row("kube/test_shared_status.py", "what shared status is written by", "kube/rulings.py kube/coalesced.py"),
    _row("kube/test_events.py", "which events are one", "kube/eventcorrelation.py"),
    _row("kube/test_fielderrors.py", "texts as Go prints them", "kube/gotext.py"),
    _row("kube/test_selectors.py", "selectors in a query", "kube/selector_query.py"),
    _row("kube/test_logs.py", "texts in a line", "kube/text.py"),
    _row("kube/test_memo.py", "names of images are remembered", "kube/images.py"),
    _row("kube/test_queue.py", "the clock and the loop that tests run on", "kube/virtualtime.py"),
    _row("operations/imagepull", "an object per Node, of the slices that have one", "kube/nodeobjects.py"),
)


def is_about(pattern: str, module: Path) -> bool:
    """Whether a pattern of the table means the module; a star stands for folders, too."""
    return fnmatchcase(module.relative_to(ROOT / "app").as_posix(), pattern)


def mirrored(module: Path) -> Path:
    """The test file of the module's name; there may be none."""
    within = module.relative_to(ROOT / "app")
    return ROOT / "tests" / within.parent / f"test_{within.name}"


def elsewhere(module: Path) -> Iterator[Elsewhere]:
    """The rows that are about a module."""
    return (row for row in TABLE if any(is_about(pattern, module) for pattern in row.modules))
