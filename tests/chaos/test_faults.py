"""The verdict on a fault, based on the outcomes of the load."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.chaos import __main__ as command
from tests.chaos.faults import DELETED, Report, problems
from tests.chaos.load import Creation, Creations, Outcome

KILLED, ROTATION, RESTART = "kill -9 of a replica", "rotation of the CA", "kill -9 and restart of the API server"


def report(fault: str, counts: Mapping[Outcome, int]) -> Report:
    every = {Outcome.INJECTED: 100, **counts}
    attempts = [Creation(number, 0.1, one) for one, count in every.items() for number in range(count)]
    return Report(fault, Creations(attempts))


@pytest.mark.parametrize(
    ("fault", "counts", "said"),
    [
        (KILLED, {}, []),
        (KILLED, {Outcome.REFUSED: 3}, []),
        (KILLED, {Outcome.WITHOUT_SIDECAR: 1}, ["1 Pods lack their sidecar"]),
        (KILLED, {Outcome.NO_API_SERVER: 2}, ["the API server did not answer 2 times"]),
        (ROTATION, {Outcome.REFUSED: 3}, ["3 Pods were refused"]),
        (RESTART, {Outcome.NO_API_SERVER: 2}, []),
        (DELETED, {Outcome.WITHOUT_SIDECAR: 9}, []),
        (DELETED, {Outcome.INJECTED: 0}, ["only 0 Pods have their sidecar"]),
    ],
)
def test_a_fault_allows_some_outcomes(fault: str, counts: Mapping[Outcome, int], said: list[str]) -> None:
    assert problems(report(fault, counts)) == said


@pytest.mark.parametrize(("missing", "code"), [(0, 0), (1, 1)])
def test_the_command_fails_if_there_is_a_problem(missing: int, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def site(_: Path) -> Iterator[None]:
        yield

    monkeypatch.setattr(sys, "argv", ["chaos", "rotation"])
    monkeypatch.setattr(command, "site", site)
    seen = report(ROTATION, {Outcome.WITHOUT_SIDECAR: missing})
    monkeypatch.setattr(command, "run", lambda *_, **__: seen)
    assert command.main() == code


def test_an_unknown_fault_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["chaos", "flood"])
    with pytest.raises(SystemExit) as ended:
        command.main()
    assert ended.value.code == 2
