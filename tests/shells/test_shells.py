"""Every controller and the node agent against the faults of ``checks.py``."""

from __future__ import annotations

from typing import Any

import pytest

from app.kube.admission import PolicyRule
from app.manager.features import features
from app.manager.rbac import AGENT_RULES
from tests.features.sidecarset import test_missed_pods
from tests.planted import load, planted
from tests.shells import agents
from tests.shells.building import parts
from tests.shells.cases import CASES
from tests.shells.checks import Case, Report
from tests.shells.planted import LIST
from tests.shells.suite import expected, report_of

Json = dict[str, Any]
#: Verbs of RBAC, and the methods that need them.
METHODS = {"create": "POST", "update": "PUT", "patch": "PATCH", "delete": "DELETE", "deletecollection": "DELETE"}
#: Background tasks that write to the cluster, and the tests of their failed writes.
BACKGROUND = {
    "Pods that bypassed admission": (
        test_missed_pods.test_a_condition_that_could_not_be_written_is_written_by_a_later_check,
        test_missed_pods.test_conditions_that_cannot_be_written_are_given_up,
    )
}


def permitted(rules: tuple[PolicyRule, ...]) -> set[str]:
    """Return the writes that permissions allow, as recorded. Events and dry runs of admission do not count, nor do
    finalizers, which are not written: their permission allows owner references that block a deletion."""
    return {
        f"{METHODS[verb]} {resource}"
        for rule in rules
        for verb in rule.verbs
        for resource in rule.resources
        if verb in METHODS and resource != "events" and not resource.endswith("/finalizers") and not rule.optional
    }


def written(recorded: Json) -> set[str]:
    """Return the writes in a case's results."""
    methods = tuple(METHODS.values())
    return {one for one in (*recorded["writes"], *recorded["done"]) if one.startswith(methods) and ":" not in one}


def test_each_controller_has_a_case() -> None:
    """The test fails if a feature declares a controller that this suite does not cover."""
    assert set(parts()) == {case().name for case in CASES if not case().name.startswith("agent: ")}


def test_each_background_task_that_writes_has_tests_of_failed_writes() -> None:
    """No case runs background tasks."""
    writing = {part.name for one in features() for part in one.background if permitted(part.permissions)}
    assert writing == set(BACKGROUND)


def test_the_node_agent_makes_each_write_that_it_may_make_and_no_other() -> None:
    made = {what for make in agents.CASES for what in written(expected()[make().name])}
    assert made == permitted(AGENT_RULES)


def test_each_planted_bug_matches_one_place_in_the_code() -> None:
    assert all(planted(bug) for bug in load(LIST))


@pytest.mark.behaviour("ACJ-17", "BJ-17", "CS-52", "CS-57", "DS-70")
@pytest.mark.parametrize("make", [pytest.param(one, id=one().name) for one in CASES])
def test_a_controller_survives_each_fault(make: type[Case]) -> None:
    case = make()
    report: Report = report_of(case)
    assert report.problems == []
    # Changes are reviewed by hand: `python -m tests.shells --write` records the current results.
    assert report.as_json() == expected()[case.name]
    if (part := parts().get(case.name)) is not None:
        made, allowed = written(report.as_json()), permitted(part.permissions)
        assert made <= allowed
        assert allowed - made == set(case.never), "permitted, and written by no edit of the case"
