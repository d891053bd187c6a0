"""Advanced DaemonSet: a Pod on every matching node, updated by replacing it or in place."""
