"""Advanced DaemonSet: one Pod on every node that takes it.

``plan`` decides, ``reconcile`` carries out; what it shares with other workloads is in ``app.workloads.engine``.
"""
