"""Run ``pykruise manager``: parse the flags, bind the ports and start the processes.

Settings are read and ports are bound first, so that errors are reported at once and by one process. The supervisor then
forks the processes of the replica (supervisor.py): some serve reviews (admission.py), one writes to the cluster
(reconciler.py). Docs: docs/operations.md.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from app.certs.issue import CertificateError
from app.framework.policies import PolicyError
from app.kube import logs
from app.kube.config import load_config
from app.kube.errors import ConfigError
from app.kube.leases import LeadershipLost
from app.kube.reflector import StorageRestored
from app.manager.admission import Admission, Listeners
from app.manager.flags import FlagError, help_text, parse_flags
from app.manager.process import Part, Process
from app.manager.reconciler import Reconciler, declared_webhooks
from app.manager.serving import StartError, bind, bind_address
from app.manager.settings import Settings, read_settings
from app.manager.shared_state import Replica
from app.manager.supervisor import CANNOT_START, Supervisor

logger = logging.getLogger(__name__)

#: Name of the process that does everything, if there is only one.
SINGLE: Final = "manager"
RECONCILER: Final = "reconciler"
#: Reviews take precedence when CPU is scarce, because requests wait for them. With this niceness, the reconciler gets
#: a third of the CPU time of a webhook process.
RECONCILER_NICENESS: Final = 5
#: Errors that prevent startup, reported in one line.
_START_ERRORS: Final = (StartError, ConfigError, PolicyError, CertificateError)


def main(arguments: Sequence[str], environ: Mapping[str, str]) -> int:
    """Run the command. Returns the exit code, which is 2 for invalid arguments.

    An error that prevents startup is printed to standard error as one line.
    """
    if any(argument in ("-h", "--help") for argument in arguments):
        print(help_text())  # noqa: T201
        return 0
    try:
        flags = parse_flags(arguments)
        logs.configure(flags.text("logging-format"), logs.level_for(flags.integer("v")))
        settings = read_settings(flags, environ)
    except (FlagError, StartError) as error:
        logs.fatal(str(error))
        return 2
    try:
        _warn_of_what_does_nothing(settings)
        listeners = bind_all(settings)
        _check(settings, environ)
    except _START_ERRORS as error:
        logs.fatal(str(error))
        return 1
    count = flags.integer("webhook-processes")
    if count == 0:
        return min(1, _be(lambda: single_process(settings, environ, listeners)))
    webhook_processes = tuple(f"webhook-{number}" for number in range(count))
    replica = Replica((*webhook_processes, RECONCILER))
    endpoint = settings.endpoint(listeners.webhook_port)

    def admission(process: Process) -> Sequence[Part]:
        return (Admission(process, listeners, webhook_processes, RECONCILER),)

    def reconciling(process: Process) -> Sequence[Part]:
        return (Reconciler(process, endpoint, webhook_processes),)

    def work(name: str, parts: Callable[[Process], Sequence[Part]]) -> Callable[[], int]:
        return lambda: _be(lambda: Process(name, replica, settings, environ, parts))

    def reconcile() -> int:
        os.nice(RECONCILER_NICENESS)
        return work(RECONCILER, reconciling)()

    works = {name: work(name, admission) for name in webhook_processes} | {RECONCILER: reconcile}
    return Supervisor(replica, works, hang_seconds=flags.seconds("process-hang-timeout")).run()


def single_process(settings: Settings, environ: Mapping[str, str], listeners: Listeners) -> Process:
    """Return a process that does everything, for development or where memory matters more than latency."""
    endpoint = settings.endpoint(listeners.webhook_port)

    def both(process: Process) -> Sequence[Part]:
        return (Admission(process, listeners, (SINGLE,), SINGLE), Reconciler(process, endpoint, (SINGLE,), single=True))

    return Process(SINGLE, Replica((SINGLE,)), settings, environ, both)


def bind_all(settings: Settings) -> Listeners:
    """Bind the sockets of a replica. Raises StartError."""
    flags = settings.flags
    return Listeners(
        bind(settings.bind_host, settings.webhook_port, "--webhook-port"),
        bind_address(flags.text("health-probe-addr"), "--health-probe-addr"),
        bind_address(flags.text("metrics-addr"), "--metrics-addr"),
    )


def _check(settings: Settings, environ: Mapping[str, str]) -> None:
    """Check for errors that would make every process fail."""
    declared_webhooks(settings)
    asyncio.run(load_config(settings.flags.text("kubeconfig"), environ=environ))


def _be(make: Callable[[], Process]) -> int:
    """Run one process of a replica until it is stopped. Returns the exit code."""
    import uvloop

    async def run() -> None:
        await make().run()

    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(run())
    except _START_ERRORS as error:
        logs.fatal(str(error))
        return CANNOT_START
    except (LeadershipLost, StorageRestored) as error:
        logger.error("exiting: %s", error)  # noqa: TRY400
        return 1
    return 0


def _warn_of_what_does_nothing(settings: Settings) -> None:
    given = [f"--{name}" for name in settings.flags.without_meaning]
    given += [f"feature gate {name}" for name in settings.gates.without_effect]
    if given:
        logger.warning("accepted without effect: %s", ", ".join(given))
