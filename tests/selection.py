"""Which of the tests on real clusters one run of CI makes: ``pytest --sample``. ``make nightly`` makes them all.

Some always run. Of the others run those about changed packages, as far as a limited time allows, and one in twenty. The
commit's name decides which, so that a run of a commit repeats exactly. $CI_BASE names the commit before the change; by
default, the last 100 commits count as the change, because a clean clone does not tell what was tested last.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Set
from functools import cache, partial
from pathlib import Path
from typing import Final
from zlib import crc32

import pytest

from tests.nightly import NIGHTLY

ROOT: Final = Path(__file__).resolve().parent.parent
ROTATION: Final = 20
#: Seconds for the tests about changed areas, which would often take half an hour.
LIMIT: Final = 30.0
#: Work lands in sessions of up to so many commits.
COMMITS: Final = 100
#: At most so many changed areas select their tests.
FEW: Final = 5
#: Folders in which a change selects tests.
FOLDERS: Final = ("app", "deploy", "policies", "tests")
#: Tests that are selected one by one → about how many seconds each takes. Others are selected by module.
ONE_BY_ONE: Final = {"scenarios/": 15.0, "conformance/": 0.3, "cli/test_guides": 40.0}
#: About how many seconds a module takes, and those that take much longer.
MODULE: Final = 60.0
LONG: Final = {"deploy/test_crds_controlplane": 200.0, "deploy/test_release_cluster": 350.0}
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
#: Areas whose changes show in tests of others → those areas.
SHARED: Final = {
    "admission": ("deletionprotection", "launchpriority", "podunavailablebudget", "sidecarset", "workloadspread"),
    "certs": ("manager",),
    "client": ("cli",),
    "framework": ("cloneset", "imagepull", "manager", "podunavailablebudget", "sidecarset"),
    "kube": ("cloneset", "daemon", "manager", "sidecarset"),
    "pods": ("cloneset", "podprobe", "sidecarset", "statefulset", "workloadspread"),
    "policies": ("deletionprotection", "deploy"),
    "workloads": ("cloneset", "daemonset", "statefulset", "uniteddeployment"),
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
    "deploy": ("manager", "api", "generate", "deploy"),
    "cluster": (),
    "property": ("sidecarset",),
}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --sample and --core."""
    parser.addoption("--sample", action="store_true", help="of the tests on real clusters, those that CI selects")
    parser.addoption("--core", action="store_true", help="of the tests on real clusters, those that CI always runs")


@pytest.hookimpl(trylast=True)  # -m goes first: the limit is that of one level
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect what CI does not run."""
    core = config.getoption("--core")
    if not core and (not config.getoption("--sample") or NIGHTLY):
        return
    expensive = {item.nodeid for item in items if _expensive(item)}
    processes = getattr(config, "workerinput", {}).get("workercount", 1)
    left_out = expensive - (_core(expensive) if core else selected(expensive, LIMIT * processes))
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid in left_out])
    items[:] = [item for item in items if item.nodeid not in left_out]


def _expensive(item: pytest.Item) -> bool:
    return any(item.get_closest_marker(name) for name in ("controlplane", "cluster"))


def _core(nodeids: Set[str]) -> set[str]:
    return {nodeid for nodeid in nodeids if is_core(nodeid)}


def selected(nodeids: Set[str], seconds: float) -> set[str]:
    """Return the tests that CI runs. Those about changed areas take about ``seconds`` or less."""
    core = _core(nodeids)
    others = {nodeid: _check(nodeid) for nodeid in nodeids - core if _module(nodeid) not in NIGHTLY_ONLY}
    changed = changed_areas()
    about = {check for nodeid, check in others.items() if changed.intersection((_file(nodeid), *areas_of_test(nodeid)))}
    share = min(1.0, seconds / max(1.0, sum(takes for _, takes in about)))
    shares = {check: max(share if check in about else 0.0, 1 / ROTATION) for check in others.values()}
    return core | {nodeid for nodeid, check in others.items() if _number(check[0]) < shares[check]}


def _check(nodeid: str) -> tuple[str, float]:
    """Return what is selected together with a test: itself or its module, and about how many seconds it takes."""
    module = _module(nodeid)
    for prefix, seconds in ONE_BY_ONE.items():
        if module.startswith(prefix):
            return nodeid, seconds
    return module, LONG.get(module, MODULE)


def _file(nodeid: str) -> str:
    return nodeid.partition("::")[0]


def _module(nodeid: str) -> str:
    return _file(nodeid).removeprefix("tests/").removesuffix(".py")


def _number(*names: str) -> float:
    """Return a number from 0 to 1, which depends on the commit under test."""
    return crc32(" ".join((_commit(), *names)).encode()) / 2**32


def is_core(nodeid: str) -> bool:
    """Return whether CI always runs this test."""
    return _module(nodeid) in CORE or nodeid.partition("::")[2].partition("[")[0] in CORE


def areas_of_test(nodeid: str) -> tuple[str, ...]:
    """Return the areas that a test is about."""
    path = _file(nodeid).removeprefix("tests/")
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
    """Return the areas that have changed and those whose tests show it. A changed file of tests is its own area."""
    base = os.environ.get("CI_BASE")
    since = f"{base}..HEAD" if base else f"--max-count={COMMITS}"
    commits = {}
    for text in _git("log", since, "--format=%x00%h", "--name-only", "--", *FOLDERS).split("\0"):
        commit, *paths = text.split("\n")
        commits[commit] = frozenset(filter(None, map(_changed, paths)))
    return frozenset(one for changed in few(commits) for one in (changed, *SHARED.get(changed, ())))


def _changed(path: str) -> str:
    """Return the area of a changed file; empty if no test on a real cluster is about it."""
    if not path.startswith("tests/"):
        return area(path) if path else ""
    return path if on_a_cluster(ROOT / path) else ""


def on_a_cluster(path: Path) -> bool:
    """Return whether a file has tests on a real cluster that CI may select."""
    name = path.relative_to(ROOT / "tests").with_suffix("").as_posix()
    if not path.name.startswith("test_") or not path.exists() or name in NIGHTLY_ONLY:
        return False
    text = path.read_text("utf-8")
    return path.parent.name == "scenarios" or "mark.controlplane" in text or "mark.cluster" in text


def few(commits: Mapping[str, frozenset[str]]) -> frozenset[str]:
    """Return the areas that these commits have changed. Of more than FEW, each commit adds one until there are FEW: an
    area that many commits have changed is likely to be among them; a commit that changes all areas adds only one."""
    areas: frozenset[str] = frozenset().union(*commits.values())
    if len(areas) <= FEW:
        return areas
    found: dict[str, None] = {}
    for commit in sorted(filter(commits.__getitem__, commits), key=_number):
        found[min(commits[commit], key=partial(_number, commit))] = None
    return frozenset([*found][:FEW])


@cache
def _commit() -> str:
    return _git("rev-parse", "HEAD")


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip()
