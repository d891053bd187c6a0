"""Subjects of runs. To add one, declare a :class:`~tests.simulation.workloads.subject.Subject` in its own module and
list it in :data:`SUBJECTS`; nothing else in the simulation depends on it.
"""

from __future__ import annotations

from collections.abc import Mapping

from tests.simulation.workloads.advancedcronjob import CRON_JOBS
from tests.simulation.workloads.broadcastjob import BROADCAST_JOBS
from tests.simulation.workloads.cloneset import CLONE_SETS
from tests.simulation.workloads.daemonset import DAEMON_SETS
from tests.simulation.workloads.ephemeraljob import EPHEMERAL_JOBS
from tests.simulation.workloads.judge import Judge, Review
from tests.simulation.workloads.nodeagents import NODE_AGENTS
from tests.simulation.workloads.podunavailablebudget import BUDGETS
from tests.simulation.workloads.sidecarset import SIDECAR_SETS
from tests.simulation.workloads.statefulset import STATEFUL_SETS
from tests.simulation.workloads.subject import Subject, Workload
from tests.simulation.workloads.workloadspread import WORKLOAD_SPREADS

#: By the name that ``--about`` takes.
SUBJECTS: Mapping[str, Subject] = {
    "cloneset": CLONE_SETS,
    "statefulset": STATEFUL_SETS,
    "daemonset": DAEMON_SETS,
    "sidecarset": SIDECAR_SETS,
    "workloadspread": WORKLOAD_SPREADS,
    "podunavailablebudget": BUDGETS,
    "broadcastjob": BROADCAST_JOBS,
    "ephemeraljob": EPHEMERAL_JOBS,
    "advancedcronjob": CRON_JOBS,
    "nodeagents": NODE_AGENTS,
}

#: The subject of a run without ``--about``.
DEFAULT = next(iter(SUBJECTS))

__all__ = ["DEFAULT", "SUBJECTS", "Judge", "Review", "Subject", "Workload"]
