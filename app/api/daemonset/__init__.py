"""Advanced DaemonSet: one Pod on every node that takes it. Fields, defaults, conversion."""

from app.api.daemonset.definition import DAEMON_SET
from app.api.daemonset.types import DaemonSet, DaemonSetStatus, RollingUpdate, UpdateStrategy

__all__ = ["DAEMON_SET", "DaemonSet", "DaemonSetStatus", "RollingUpdate", "UpdateStrategy"]
