"""Taking over a cluster that OpenKruise runs in, and giving it back: what is there, what changes, in which order. Pure.

The order leaves no moment without an answer. Rights are added before anything uses them and taken away last. The
Deployment is rolled out with a surge, so replicas of both serve behind one Service, with one certificate, and one Lease
says which of them reconciles. Definitions change while only ours answer ``/convert``.

Which steps are done is read from the cluster, so a takeover that was interrupted goes on where it stands.
"""

from app.manager.takeover.back import back_plan
from app.manager.takeover.forward import takeover_plan
from app.manager.takeover.model import (
    BACKUP,
    BY_KIND,
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    CONFIGURATIONS,
    DAEMON,
    ROLE_BINDINGS,
    ROLES,
    Installed,
    Plan,
    Step,
    TakeoverError,
    in_scope,
    unpacked,
)
from app.manager.takeover.progress import is_rolled_out, replica_counts

__all__ = [
    "BACKUP",
    "BY_KIND",
    "CLUSTER_ROLES",
    "CLUSTER_ROLE_BINDINGS",
    "CONFIGURATIONS",
    "DAEMON",
    "ROLES",
    "ROLE_BINDINGS",
    "Installed",
    "Plan",
    "Step",
    "TakeoverError",
    "back_plan",
    "in_scope",
    "is_rolled_out",
    "replica_counts",
    "takeover_plan",
    "unpacked",
]
