"""A few hundred random cases, and proof that the checks and the runner find errors."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.property import checks, run
from tests.property.branches import BRANCHES
from tests.property.case import Json
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


def first_container(operations: list[Json]) -> Json:
    return next(o for o in operations if o["path"].startswith("/spec/containers/"))


def wrong_image(operations: list[Json]) -> None:
    first_container(operations)["value"]["image"] = "registry.example/wrong:1"


def wrong_place(operations: list[Json]) -> None:
    operations.append({"op": "add", "path": "/spec/containers/99", "value": {}})


def other_container(operations: list[Json]) -> None:
    operations.append({"op": "add", "path": "/spec/hostNetwork", "value": True})


@pytest.mark.parametrize(
    ("spoil", "problem"),
    [
        (wrong_image, "the Pod differs from the expected one"),
        (wrong_place, "the patch does not apply"),
        (other_container, "/spec/hostNetwork changed, which no rule cited in the patch allows"),
        (list.clear, "the Pod differs from the expected one"),
    ],
    ids=["another value", "does not apply", "outside of the rules", "nothing done"],
)
def test_a_wrong_patch_is_reported_with_a_command_to_repeat_it(
    spoil: Callable[[list[Json]], None], problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seed, good = injected()
    operations = json.loads(json.dumps(good.operations))
    spoil(operations)
    rules = [*good.rules, "SS-42"][: len(operations)]
    monkeypatch.setattr(checks, "answer", lambda case: replace(good, operations=operations, rules=rules))
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


def test_an_operation_without_a_rule_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    seed, good = injected()
    monkeypatch.setattr(checks, "answer", lambda case: replace(good, rules=[""] * len(good.rules)))
    assert any("names no rule" in told for told in checks.judge(generate(seed)).problems)


def test_an_unexpected_refusal_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    seed, _ = injected()
    monkeypatch.setattr(checks, "answer", lambda case: Answer(refused="no"))
    assert any("no rule refuses it" in told for told in checks.judge(generate(seed)).problems)


def test_a_changing_second_pass_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    seed, _ = injected()
    answer = checks.answer
    asked = []

    def restless(case: Any) -> Answer:
        asked.append(case)
        found = answer(case)
        if len(asked) == 1:
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


def test_a_stopped_run_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "CHUNK", 10)
    path = tmp_path / "run" / "property.json"
    half = run.Progress(first=1, cases=35, digest="code")
    for first in (1, 31):
        half.add(run.judge_chunk((first, min(first + 10, 36))))
    half.save(path)

    resumed = run.load(path, 1, 35, "code")
    assert (resumed.judged, sorted(resumed.done)) == (15, [1, 31])
    told: list[str] = []
    run.run(resumed, path, jobs=1, say=told.append)
    assert (resumed.judged, sorted(resumed.done), resumed.failed) == (35, [1, 11, 21, 31], [])

    whole = run.judge_chunk((1, 36))
    assert run.load(path, 1, 35, "code").branches == whole.branches


@pytest.mark.parametrize(
    ("first", "cases", "digest", "text"),
    [(2, 35, "code", "--seed 1"), (1, 36, "code", "--cases 35"), (1, 35, "other", "the code has changed")],
)
def test_progress_of_another_run_is_not_resumed(first: int, cases: int, digest: str, text: str, tmp_path: Path) -> None:
    path = tmp_path / "property.json"
    with pytest.raises(run.CannotResumeError, match="nothing to resume"):
        run.load(path, first, cases, digest)
    run.Progress(first=1, cases=35, digest="code").save(path)
    with pytest.raises(run.CannotResumeError, match=text):
        run.load(path, first, cases, digest)
    path.write_text("{", "utf-8")
    with pytest.raises(run.CannotResumeError, match="not readable"):
        run.load(path, first, cases, digest)


def test_a_rarely_reached_branch_is_reported() -> None:
    enough = dict.fromkeys((*BRANCHES, "injected"), 5000)
    assert run.shortfalls(enough, 10_000) == []
    assert run.shortfalls({**enough, "SS-42 before": 99}, 10_000) == ["SS-42 before"]
    assert run.shortfalls({**enough, "injected": 3999}, 10_000) == ["injected (at least 40 % of the cases)"]
