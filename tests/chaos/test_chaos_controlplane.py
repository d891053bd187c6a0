"""Every fault under a brief load: no Pod ever lacks its sidecar, and the replicas recover.

`python -m tests.chaos --seconds 60` runs longer and prints figures.
"""

import json
from collections.abc import Iterator

import pytest

from tests.chaos.faults import DELETED, FAULTS, HOSTS, Report, Site, problems, run, site
from tests.chaos.load import NAMESPACE, Outcome
from tests.scenarios.world import eventually

pytestmark = [pytest.mark.controlplane, pytest.mark.alone]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with site(tmp_path_factory.mktemp("chaos")) as started:
        yield started


def brief(made: Site, fault: str) -> Report:
    report = run(made, fault, before=1.0, after=5.0)
    assert problems(report) == [], f"{report.creations.messages()}\n{made.balancer_log.read_text()}"
    return report


@pytest.mark.parametrize("fault", [name for name in FAULTS if name != DELETED])
def test_no_pod_is_created_without_its_sidecar(made: Site, fault: str) -> None:
    brief(made, fault)


@pytest.mark.behaviour("MGR-123", "SS-136")
def test_pods_created_while_the_webhook_was_missing_are_reported_and_counted(made: Site) -> None:
    before = bypassed(made)
    report = brief(made, DELETED)
    missing = report.creations.count(Outcome.WITHOUT_SIDECAR)

    def counted() -> bool:
        assert bypassed(made) - before == missing
        return True

    eventually(counted, f"all {missing} Pods are counted", 40)
    eventually(lambda: len(warned(made)) == missing, f"all {missing} Pods have their event", 30)
    if missing:
        eventually(lambda: "created while no webhook was called" in missed(made), "their set reports it", 15)


def bypassed(made: Site) -> float:
    return sum(made.replicas[host].metric("kruise_bypassed_pods_total") for host in HOSTS)


def missed(made: Site) -> str:
    path = '{.items[*].status.conditions[?(@.type=="PodsMissed")].message}'
    return str(made.control_plane.kubectl("get", "sidecarsets", "-o", f"jsonpath={path}").stdout)


def warned(made: Site) -> set[str]:
    selector = "--field-selector=reason=SidecarsMissing,type=Warning"
    found = made.control_plane.kubectl("get", "events", "-n", NAMESPACE, selector, "-o", "json").stdout
    return {event["involvedObject"]["name"] for event in json.loads(found)["items"]}
