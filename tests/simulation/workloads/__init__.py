"""Workloads beside CloneSet in the simulation: what users do with them, and what must hold of them, one module each.

A workload that is added here is a :class:`~tests.simulation.workloads.subject.Subject` in a module of its own and a
line in :data:`SUBJECTS`; nothing else in the simulation knows of it.
"""

from __future__ import annotations

from collections.abc import Mapping

from tests.simulation.workloads.advancedcronjob import CRON_JOBS
from tests.simulation.workloads.broadcastjob import BROADCAST_JOBS
from tests.simulation.workloads.daemonset import DAEMON_SETS
from tests.simulation.workloads.ephemeraljob import EPHEMERAL_JOBS
from tests.simulation.workloads.podunavailablebudget import BUDGETS
from tests.simulation.workloads.sidecarset import SIDECAR_SETS
from tests.simulation.workloads.statefulset import STATEFUL_SETS
from tests.simulation.workloads.subject import Judge, JudgeOfReviews, Subject
from tests.simulation.workloads.workloadspread import WORKLOAD_SPREADS

#: By the name that a run is told.
SUBJECTS: Mapping[str, Subject] = {
    "statefulset": STATEFUL_SETS,
    "daemonset": DAEMON_SETS,
    "sidecarset": SIDECAR_SETS,
    "workloadspread": WORKLOAD_SPREADS,
    "podunavailablebudget": BUDGETS,
    "broadcastjob": BROADCAST_JOBS,
    "ephemeraljob": EPHEMERAL_JOBS,
    "advancedcronjob": CRON_JOBS,
}

__all__ = ["SUBJECTS", "Judge", "JudgeOfReviews", "Subject"]
