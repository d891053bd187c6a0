"""EphemeralJob: runs ephemeral containers in the Pods it selects."""
