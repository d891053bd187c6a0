"""Where the tests of a module are: in ``tests/<same path>/test_<name>.py``, or where this table says.

A row says why its modules have no file of their own. A new module gets a test file of its name.
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
    """Modules below app/, by patterns, and the file or folder below tests/ that tests them."""

    tests: str
    why: str
    modules: tuple[str, ...]


def _row(tests: str, why: str, modules: str) -> Elsewhere:
    return Elsewhere(tests, why, tuple(modules.split()))


_DECLARED: Final = "a declaration: what is derived from it is tested"
_TYPES: Final = "types, constants or protocols alone: tested where they are used"
_BY_COMMAND: Final = "run by the command, as users type it"
_BY_FEATURE: Final = "a part of the feature: tested by what happens to objects and Pods"
_FEATURES: Final = sorted(path.parent.name for path in (ROOT / "app" / "features").glob("*/feature.py"))

TABLE: Final = (
    # ---- whatever the feature
    _row("manager/test_features.py", _DECLARED, "features/*/feature.py framework/*.py"),
    _row("api/test_gomodel.py", _DECLARED, "features/*/types.py api/go*.py"),
    _row("features/test_examples.py", _DECLARED, "features/*/kind.py api/kind.py api/fields.py"),
    *(_row(f"features/{name}", _BY_FEATURE, f"features/{name}/*") for name in _FEATURES),
    # ---- folders whose tests are by what users or clients do
    _row("sandbox", "a cluster: tested by requests, and by what kubectl sees", "sandbox/*"),
    _row("daemon", "an agent on a simulated runtime: tested by what it is asked to do", "daemon/*"),
    _row("cli", _BY_COMMAND, "cli/*"),
    _row("client", "the Python client: tested by programs that use it", "client/*"),
    _row("manager", "processes, flags and pages: tested as the program that runs", "manager/*"),
    _row("dashboard/test_pages.py", "a section of the page, tested as a page", "dashboard/*.py"),
    _row("admission/test_server.py", "the HTTP service: tested by requests", "admission/*"),
    _row("generate", "generated files: compared with what the repository has", "generate/*"),
    _row("api", "tested through the webhooks, and against recorded objects", "api/*"),
    _row("certs/test_tls.py", "sources of certificates: tested on a real socket", "certs/*"),
    # ---- the engine of workloads
    _row(
        "workloads/test_reconciler.py",
        "run by each reconcile of each workload",
        "workloads/history.py workloads/settings.py workloads/state.py workloads/updater.py",
    ),
    _row(
        "features/imagepull/test_update_orders.py",
        "what workloads provide to other features: tested with one that uses it",
        "workloads/controllers.py",
    ),
    _row("cli/test_rollout.py", _BY_COMMAND, "workloads/commands.py workloads/report.py"),
    _row(
        "features/statefulset/test_webhooks.py",
        "what the webhooks of workloads share: tested with StatefulSet's",
        "workloads/validation.py",
    ),
    # ---- what features share of Pods
    _row("workloads/test_writer.py", _TYPES, "pods/disruption_budget.py pods/node_agents.py"),
    _row("pods/inplace/test_start.py", "a part of an update in place", "pods/inplace/*"),
    _row("features/persistentpodstate", "with the features that ask for such workloads", "pods/custom_workloads.py"),
    # ---- the toolkit
    _row("admission/test_server.py", _TYPES, "kube/admission.py"),
    _row("kube/test_transport.py", "parts of the connection", "kube/http1.py"),
    _row("kube/test_client.py", "parts of the client", "kube/discovery.py"),
    _row("kube/test_statuses_shared.py", "what shared status is written by", "kube/rulings.py"),
    _row("kube/test_selectors.py", "selectors in a query", "kube/selector_query.py"),
)


def is_about(pattern: str, module: Path) -> bool:
    """Return whether a pattern of the table matches the module; a star also matches folders."""
    return fnmatchcase(module.relative_to(ROOT / "app").as_posix(), pattern)


def mirrored(module: Path) -> Path:
    """Return the test file with the module's name, which may not exist."""
    within = module.relative_to(ROOT / "app")
    return ROOT / "tests" / within.parent / f"test_{within.name}"


def elsewhere(module: Path) -> Iterator[Elsewhere]:
    return (row for row in TABLE if any(is_about(pattern, module) for pattern in row.modules))
