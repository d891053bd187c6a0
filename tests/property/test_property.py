"""A few hundred random cases, and proof that the checks and the runner find errors."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.property import checks, run
from tests.property.branches import BRANCHES
from tests.property.generate import generate
from tests.property.product import Answer

#: The rules of injection that the creation of a Pod shows.
RULES = [f"SS-{n}" for n in range(35, 72) if n not in (36, 55, 68, 71)]


@pytest.mark.behaviour(
    *RULES, "SS-51", "SS-77", "PW-6", "PW-10", "PW-11", "PW-12", "PW-13", "PW-14", "PW-15", "PW-30", "D-21"
)
@pytest.mark.parametrize("first", range(1, 301, 50))
def test_random_cases_match_the_reference(first: int) -> None:
    for seed in range(first, first + 50):
        outcome = checks.judge(generate(seed))
        assert not outcome.problems, outcome.report()


def test_a_number_always_generates_the_same_case() -> None:
    assert generate(4711).text() == generate(4711).text()
    assert generate(4711).text() != generate(4712).text()


def injected(seed: int = 1) -> tuple[int, Answer]:
    """Return a repeatable case that injects, and the product's answer."""
    while True:
        outcome = checks.judge(generate(seed))
        containers = any(rule.startswith("SS-42") for rule in outcome.answer.rules)
        if outcome.expected.injected and containers and not outcome.expected.unrepeatable:
            return seed, outcome.answer
        seed += 1


def wrong_image(answer: Answer) -> None:
    first = next(one for one in answer.operations if one["path"].startswith("/spec/containers/"))
    first["value"]["image"] = "registry.example/wrong:1"


def adding(path: str, value: Any) -> Callable[[Answer], None]:
    def spoil(answer: Answer) -> None:
        answer.operations.append({"op": "add", "path": path, "value": value})
        answer.rules.append("SS-42")

    return spoil


def nothing_done(answer: Answer) -> None:
    answer.operations.clear()
    answer.rules.clear()


def without_rules(answer: Answer) -> None:
    answer.rules[:] = [""] * len(answer.rules)


@pytest.mark.parametrize(
    ("spoil", "problem"),
    [
        pytest.param(wrong_image, "the Pod differs from the expected one", id="another value"),
        pytest.param(adding("/spec/containers/99", {}), "the patch does not apply", id="does not apply"),
        pytest.param(adding("/spec/hostNetwork", True), "/spec/hostNetwork changed, which no rule cited in the patch "
                     "allows", id="outside of the rules"),
        pytest.param(nothing_done, "the Pod differs from the expected one", id="nothing done"),
        pytest.param(without_rules, "names no rule", id="no rule"),
    ],
)  # fmt: skip
def test_a_wrong_patch_is_reported_with_a_command_to_repeat_it(
    spoil: Callable[[Answer], None], problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seed, good = injected()
    wrong = copy.deepcopy(good)
    spoil(wrong)
    monkeypatch.setattr(checks, "answer", lambda case: wrong)
    outcome = checks.judge(generate(seed))
    assert any(problem in told for told in outcome.problems), outcome.problems
    report = outcome.report()
    assert f"python -m tests.property --case {seed}" in report
    assert all(part in report for part in ('"pod":', '"sets":', "expected:", "got:"))


def test_an_in_place_pod_change_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    seed, good = injected()

    def careless(case: Any) -> Answer:
        case.pod["spec"]["hostNetwork"] = True
        return good

    monkeypatch.setattr(checks, "answer", careless)
    assert "the Pod of the request was changed in place" in checks.judge(generate(seed)).problems


def test_an_unexpected_refusal_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    seed, _ = injected()
    monkeypatch.setattr(checks, "answer", lambda case: Answer(refused="no"))
    assert any("no rule refuses it" in told for told in checks.judge(generate(seed)).problems)


def test_a_changing_second_pass_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    seed, _ = injected()
    answer, again = checks.answer, itertools.count()

    def restless(case: Any) -> Answer:
        found = answer(case)
        if not next(again):
            return found
        touch = {"op": "replace", "path": "/metadata/annotations/kruise.io~1sidecarset-injected-list", "value": "other"}
        return replace(found, operations=[*found.operations, touch], rules=[*found.rules, "SS-56"])

    monkeypatch.setattr(checks, "answer", restless)
    assert any(told.startswith("D-21: the second pass") for told in checks.judge(generate(seed)).problems)


def test_changes_are_named_by_list_item() -> None:
    before = {"a": [{"name": "x", "v": 1}, {"name": "y"}], "b": {"k/1": 1}, "c": [1]}
    after = {"a": [{"name": "new"}, {"name": "x", "v": 2}, {"name": "y"}], "b": {"k/1": 1, "k~2": 2}, "c": [1, 2]}
    assert checks.changed(before, after) == {"/a/new", "/a/x/v", "/b/k~02", "/c/1"}
    assert checks.changed({"a": [{"name": "x"}, {"name": "y"}]}, {"a": [{"name": "y"}, {"name": "x"}]}) == {"/a#order"}


def test_a_run_judges_every_case_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "CHUNK", 10)
    progress = run.Progress()
    run.run(progress, 1, 35, jobs=1, say=print)
    assert progress == run.judge_chunk((1, 36))
    assert (progress.judged, progress.failed) == (35, [])


def test_a_rarely_reached_branch_is_reported() -> None:
    enough = dict.fromkeys((*BRANCHES, "injected"), 5000)
    assert run.shortfalls(enough, 10_000) == []
    assert run.shortfalls({**enough, "SS-42 before": 99}, 10_000) == ["SS-42 before"]
    assert run.shortfalls({**enough, "injected": 3999}, 10_000) == ["injected (at least 40 % of the cases)"]
