"""A server in memory for each test, on virtual time, and a client in the same process."""

from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

import pytest

from app.kube.client import Client
from app.sandbox.apiserver.server import ApiServer
from tests.kit import virtualtime
from tests.kit.virtualtime import VirtualClock

Scenario = Callable[[Client, ApiServer], Awaitable[Any]]


@pytest.fixture
def play() -> Callable[[Scenario], Any]:
    """Runs a scenario against a fresh server on virtual time."""

    def run(scenario: Scenario) -> Any:
        async def main() -> Any:
            clock = VirtualClock()
            api = ApiServer(clock=clock, rng=Random(7))
            try:
                return await scenario(Client(api.transport(managed_fields=True), clock), api)
            finally:
                api.close()

        return virtualtime.run(main())

    return run
