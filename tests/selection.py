"""Which of the expensive checks one run of CI makes; ``make nightly`` makes them all.

A check is selected if it is about a package that has changed, or by rotation: one in ten, chosen by the commit's name,
so that a run of a commit repeats exactly. A change to many packages leaves the choice to rotation.
$CI_BASE names the commit to compare with; by default the newest one a day older than HEAD. ``pytest --sample`` applies
the selection to the tests on real clusters; simulation and mutants have an option of that name, too.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Final
from zlib import crc32

import pytest

from tests.nightly import NIGHTLY

ROOT: Final = Path(__file__).resolve().parent.parent
ROTATION: Final = 10
#: With this many changed areas, rotation alone selects: all their checks would take hours.
WIDE: Final = 6
#: Folders of app/ and tests/ with one folder per kind.
GROUPS: Final = ("features",)
#: Always run: one scenario of each kind, and what protects the cluster from its tenants.
CORE: Final = frozenset(
    (
        "manager/test_hostile_controlplane",
        "manager/test_manager_controlplane",
        "scenarios/test_permissions",
        "test_a_new_budget_covers_existing_pods",
        "test_a_config_map_is_synced_to_its_targets",
        "test_a_container_is_added_to_a_running_pod_and_stays",
        "test_a_matching_pod_starts_its_sidecar_first",
        "test_a_pod_with_the_gate_becomes_ready",
        "test_a_failing_probe_restarts_only_its_container",
        "test_a_standard_update_replaces_pods_node_by_node",
        "test_a_manual_object_returns_pods_of_a_native_statefulset",
        "test_an_annotation_that_feeds_an_env_restarts_that_container_in_place",
        "test_an_eviction_over_the_budget_is_told_to_retry",
        "test_an_image_is_pulled_on_the_named_nodes",
        "test_an_injected_sidecar_ends_with_its_job",
        "test_a_set_written_in_one_version_can_be_read_in_the_other",
        "test_cascading_protects_a_workload_until_it_has_no_replicas",
        "test_the_image_of_all_pods_changes_in_place",
        "test_every_object_is_accepted_and_stored",
        "test_containers_start_after_those_of_higher_priority_are_ready",
        "test_pod_labels_and_condition_follow_a_probe",
        "test_one_container_restarts_and_the_other_does_not",
        "test_a_broadcast_job_runs_one_pod_on_every_node",
        "test_one_workload_per_subset_follows_replicas_and_template",
        "test_a_cloneset_fills_subsets_in_order_and_scales_in_from_the_last",
        "test_the_sidecar_restarts_in_place_and_the_app_container_does_not",
        "test_statefulset_pods_are_updated_in_place",
    )
)
#: Areas without tests on a real cluster → why.
SHARED: Final = {
    "admission": "every scenario passes through it",
    "certs": "every scenario passes through it; chaos and manager rotate certificates",
    "client": "tested on the sandbox; it is the toolkit's client",
    "framework": "scenarios of every kind",
    "generate": "the definitions and roles that every level installs",
    "workloads": "scenarios of every workload",
}
#: Modules of which CI runs the cheap tests only → why.
NIGHTLY_ONLY: Final = {
    "chaos/test_versions_controlplane": "builds and installs the previous release",
    "deploy/test_release_files": "builds a release twice",
    "deploy/test_release_archive_cluster": "builds a release with its images",
}
#: Tests whose folder does not tell their areas → areas.
ABOUT: Final = {
    "scenarios/test_cloneset": ("cloneset",),
    "scenarios/test_daemonset": ("daemonset",),
    "scenarios/test_deletion_protection": ("deletionprotection",),
    "scenarios/test_enhanced_liveness": ("podprobe",),
    "scenarios/test_ephemeraljob": ("ephemeraljob",),
    "scenarios/test_few_rights": ("cli",),
    "scenarios/test_image_jobs": ("imagepull", "daemon"),
    "scenarios/test_jobs": ("broadcastjob", "advancedcronjob"),
    "scenarios/test_launch": ("launchpriority",),
    "scenarios/test_migrate": ("cli",),
    "scenarios/test_node_agent": ("daemon",),
    "scenarios/test_node_commands": ("cli", "daemon"),
    "scenarios/test_node_operations": ("imagepull", "podprobe", "containerrecreate", "daemon"),
    "scenarios/test_permissions": ("manager",),
    "scenarios/test_persistent_pod_state": ("persistentpodstate",),
    "scenarios/test_pod_readiness": ("pods", "podreadiness"),
    "scenarios/test_podunavailablebudget": ("podunavailablebudget",),
    "scenarios/test_resource_distribution": ("resourcedistribution",),
    "scenarios/test_restarts": ("containerrecreate", "daemon"),
    "scenarios/test_sidecar_termination": ("sidecarterminator",),
    "scenarios/test_sidecarset": ("sidecarset",),
    "scenarios/test_statefulset": ("statefulset",),
    "scenarios/test_united_deployment": ("uniteddeployment",),
    "scenarios/test_workloadspread": ("workloadspread",),
    "conformance": ("sandbox",),
    "chaos": ("manager", "certs"),
    "deploy/test_dashboard": ("dashboard",),
    "deploy": ("manager", "api", "generate"),
    "cluster": (),
    "property": ("sidecarset",),
}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --sample and --core."""
    parser.addoption("--sample", action="store_true", help="of the tests on real clusters, those that CI selects")
    parser.addoption("--core", action="store_true", help="of the tests on real clusters, those that CI always runs")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect what CI does not run."""
    core = config.getoption("--core")
    if not core and (not config.getoption("--sample") or NIGHTLY):
        return
    left_out = [item for item in items if _expensive(item) and not (is_core(item.nodeid) if core else _selected(item))]
    config.hook.pytest_deselected(items=left_out)
    gone = set(left_out)
    items[:] = [item for item in items if item not in gone]


def _expensive(item: pytest.Item) -> bool:
    return any(item.get_closest_marker(name) for name in ("controlplane", "cluster"))


def selected(name: str, about: Iterable[str]) -> bool:
    """Return whether the check ``name`` about these areas runs."""
    if NIGHTLY:
        return True
    changed, number = changed_areas(), crc32(f"{_commit()} {name}".encode())
    return number % ROTATION == 0 or (len(changed) < WIDE and bool(changed.intersection(about)))


def is_core(nodeid: str) -> bool:
    """Return whether CI always runs this test."""
    file, _, test = nodeid.partition("::")
    return file.removeprefix("tests/").removesuffix(".py") in CORE or test.partition("[")[0] in CORE


def _selected(item: pytest.Item) -> bool:
    """Return whether CI runs this test. Scenarios and guides are slow, so they are selected one by one, other tests by
    module."""
    if is_core(item.nodeid):
        return True
    file = item.nodeid.partition("::")[0].removeprefix("tests/").removesuffix(".py")
    if file in NIGHTLY_ONLY:
        return False
    name = item.nodeid if file.startswith(("scenarios/", "conformance/", "cli/test_guides")) else file
    return selected(name, areas_of_test(item.nodeid))


def areas_of_test(nodeid: str) -> tuple[str, ...]:
    """Return the areas that a test is about."""
    path = nodeid.partition("::")[0].removeprefix("tests/")
    for prefix, areas in ABOUT.items():
        if path.startswith(prefix):
            return areas
    return (area(path),)


def area(path: str | Path) -> str:
    """Return the kind's folder that a module of app/ or tests/ belongs to, or its folder at the top."""
    relative = Path(path).relative_to(ROOT) if Path(path).is_absolute() else Path(path)
    parts = [part for part in relative.parts if part not in ("app", "tests")]
    return parts[1] if parts[0] in GROUPS and len(parts) > 2 else parts[0]


@cache
def changed_areas() -> frozenset[str]:
    """Return the areas of app/ with changes since the base."""
    base = os.environ.get("CI_BASE") or _day_before(_commit())
    return frozenset(map(area, _git("diff", "--name-only", base, "--", "app").splitlines()))


@cache
def _commit() -> str:
    return _git("rev-parse", "HEAD")


def _day_before(commit: str) -> str:
    when = int(_git("show", "-s", "--format=%ct", commit) or 0)
    return _git("rev-list", "-1", f"--before={when - 86400}", commit) or commit


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip()
