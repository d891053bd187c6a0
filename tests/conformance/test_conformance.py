"""Every case runs on the real API server and on the sandbox; both must answer as recorded."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any, Final

import pytest

from app.kube.clock import SystemClock
from app.kube.config import load_config
from app.kube.transport import AiohttpTransport
from app.sandbox.apiserver.server import ApiServer
from tests.cluster.controlplane import ControlPlane
from tests.conformance.answers import AT_ONCE, expected
from tests.conformance.cases import BY_SUBJECT
from tests.conformance.hooks import HookServer, hook_server
from tests.conformance.steps import Case
from tests.conformance.world import World


def differences(expected: Any, found: Any, path: str = "") -> list[str]:
    """Return one line per value that differs, with its path."""
    return list(_differences(expected, found, path))


def _differences(expected: Any, found: Any, path: str) -> Iterator[str]:
    if isinstance(expected, dict) and isinstance(found, dict):
        for key in sorted({*expected, *found}, key=str):
            at = f"{path}.{key}" if path else str(key)
            if key not in found:
                yield f"{at}: missing, expected {_shown(expected[key])}"
            elif key not in expected:
                yield f"{at}: not expected, found {_shown(found[key])}"
            else:
                yield from _differences(expected[key], found[key], at)
    elif isinstance(expected, list) and isinstance(found, list):
        for index in range(max(len(expected), len(found))):
            at = f"{path}[{index}]"
            if index >= len(found):
                yield f"{at}: missing, expected {_shown(expected[index])}"
            elif index >= len(expected):
                yield f"{at}: not expected, found {_shown(found[index])}"
            else:
                yield from _differences(expected[index], found[index], at)
    elif type(expected) is not type(found) or expected != found:
        yield f"{path}: expected {_shown(expected)}, found {_shown(found)}"


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 400 else f"{text[:400]}…"


#: Cases where the sandbox answers differently from a real server, by reason.
GAPS: Final[dict[str, tuple[str, ...]]] = {
    "no controller would remove the finalizers of volumes and claims, or the taint of a new node": (
        "printing-object-claim",
        "printing-object-node",
        "printing-object-volume",
    ),
    "differences in a refused change of a Pod's spec are listed by path, not as Go prints structs": (
        "subresources-ephemeral-change",
    ),
}

REASONS: Final = {case: reason for reason, cases in GAPS.items() for case in cases}

CASES = [
    pytest.param(subject, case, id=f"{subject}-{case.id}") for subject, cases in BY_SUBJECT.items() for case in cases
]

KNOWN_GAPS = [
    pytest.param(*case.values, id=case.id, marks=pytest.mark.xfail(strict=True, reason=REASONS[str(case.id)]))
    if case.id in REASONS
    else case
    for case in CASES
]


@pytest.fixture(scope="session")
def unused() -> list[str]:
    """Namespaces on the real server, created many at a time because they take a moment."""
    return []


@asynccontextmanager
async def hooks_of(case: Case) -> AsyncIterator[HookServer]:
    """The webhooks of a case; most cases have none, and then there is no server."""
    if "${hooks" not in repr(case.steps):
        yield HookServer()
        return
    async with hook_server() as server:
        yield server


@pytest.mark.parametrize(("subject", "case"), KNOWN_GAPS)
async def test_the_sandbox_answers_like_a_real_server(subject: str, case: Case) -> None:
    api = ApiServer(clock=SystemClock(), rng=Random(1))
    try:
        async with hooks_of(case) as hooks:
            transport = api.transport("kubernetes-admin", managed_fields=True)
            await _check(World(transport, real=False, hooks=hooks), subject, case, [])
    finally:
        await api.aclose()


@pytest.mark.controlplane
@pytest.mark.parametrize(("subject", "case"), CASES)
async def test_the_real_server_answers_as_recorded(
    subject: str, case: Case, control_plane: ControlPlane, unused: list[str]
) -> None:
    transport = AiohttpTransport(await load_config(str(control_plane.kubeconfig)))
    try:
        async with hooks_of(case) as hooks:
            await _check(World(transport, real=True, hooks=hooks), subject, case, unused)
    finally:
        await transport.close()


async def _check(world: World, subject: str, case: Case, unused: list[str]) -> None:
    if not unused:
        unused += await world.namespaces(AT_ONCE if world.real else 1)
    found = await world.run(case, unused.pop())
    assert not differences(expected(subject)[case.id], found)


def test_every_gap_has_a_case() -> None:
    assert REASONS.keys() <= {case.id for case in CASES}
