"""What a real API server answers to the conformance cases, recorded: answers/SUBJECT.json.

python -m tests.conformance.answers [SUBJECT…]     # records again; the difference is in `git diff`
"""

import asyncio
import json
import sys
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from app.kube.config import load_config
from app.kube.transport import AiohttpTransport
from tests.cluster.controlplane import ControlPlane
from tests.conformance.cases import BY_SUBJECT
from tests.conformance.hooks import hook_server
from tests.conformance.steps import Case
from tests.conformance.world import World

FOLDER = Path(__file__).parent / "answers"
#: Namespaces to create at a time: their ServiceAccounts appear a moment later.
AT_ONCE = 25


@cache
def expected(subject: str) -> dict[str, Any]:
    """Return the recorded answers of a subject, by case."""
    path = FOLDER / f"{subject}.json"
    return json.loads(path.read_text()) if path.exists() else {}


async def record(control_plane: ControlPlane, subjects: Iterable[str]) -> int:
    """Run the cases on the server and record its answers; return how many cases failed."""
    transport = AiohttpTransport(await load_config(str(control_plane.kubeconfig)))
    failed = 0
    try:
        for subject in subjects:
            async with hook_server() as hooks:
                found, wrong = await _record_subject(World(transport, real=True, hooks=hooks), BY_SUBJECT[subject])
            FOLDER.mkdir(exist_ok=True)
            (FOLDER / f"{subject}.json").write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
            print(f"{subject}: {len(found)} cases, {wrong} failed", flush=True)
            failed += wrong
    finally:
        await transport.close()
    return failed


async def _record_subject(world: World, cases: Sequence[Case]) -> tuple[dict[str, Any], int]:
    found: dict[str, Any] = {}
    namespaces: list[str] = []
    for case in cases:
        namespaces = namespaces or await world.namespaces(min(AT_ONCE, len(cases)))
        try:
            found[case.id] = await world.run(case, namespaces.pop())
        except Exception as error:  # noqa: BLE001  # record the other cases nevertheless
            print(f"{case.id}: {type(error).__name__}: {error}", flush=True)
    return found, len(cases) - len(found)


def main() -> int:
    subjects = sys.argv[1:] or list(BY_SUBJECT)
    with ControlPlane(api_server_args=["--enable-admission-plugins=NodeRestriction"]) as control_plane:
        return bool(asyncio.run(record(control_plane, subjects)))


if __name__ == "__main__":
    sys.exit(main())
