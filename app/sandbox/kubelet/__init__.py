"""A simulated kubelet without containers, as pure functions: from a Pod and what the node remembers to what comes next.

``plan`` is the whole Pod, ``containers`` one container from pull to restart, ``probes`` their probes, ``program`` what
its command would do, ``behaviour`` what a Pod or a test says instead, ``environment`` what its env needs, ``logs`` what
it prints, ``conditions`` and ``status`` the words of the report.
"""

from app.sandbox.kubelet.behaviour import BEHAVIOUR, CRASH, UNREADY, Pace, Script, Scripts
from app.sandbox.kubelet.plan import FINISHED, PodInputs, PodPlan, PodRun, plan

__all__ = [
    "BEHAVIOUR",
    "CRASH",
    "FINISHED",
    "UNREADY",
    "Pace",
    "PodInputs",
    "PodPlan",
    "PodRun",
    "Script",
    "Scripts",
    "plan",
]
