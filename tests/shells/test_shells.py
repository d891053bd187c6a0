"""Every controller and the node agent against the faults of ``checks.py``."""

from __future__ import annotations

import pytest

from app.kube.admission import PolicyRule
from tests.planted import load, planted
from tests.shells.building import parts
from tests.shells.cases import CASES
from tests.shells.checks import Case, Report
from tests.shells.planted import LIST
from tests.shells.suite import expected, report_of

#: Verbs of RBAC, and the methods that need them.
METHODS = {"create": "POST", "patch": "PATCH", "delete": "DELETE"}


def written(rules: tuple[PolicyRule, ...]) -> set[str]:
    """Return the writes that permissions allow, as recorded. Events and dry runs of admission do not count."""
    return {
        f"{METHODS[verb]} {resource}"
        for rule in rules
        for verb in rule.verbs
        for resource in rule.resources
        if verb in METHODS and resource != "events" and not rule.optional
    }


def test_each_controller_has_a_case() -> None:
    """The test fails if a feature declares a controller that this suite does not cover."""
    assert set(parts()) == {case().name for case in CASES if not case().name.startswith("agent: ")}


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
        missing = written(part.permissions) - set(report.writes) - set(report.creations) - set(case.never)
        assert not missing, "permitted, and written by no edit of the case"
