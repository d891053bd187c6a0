"""EphemeralJob: ephemeral containers in running Pods."""
