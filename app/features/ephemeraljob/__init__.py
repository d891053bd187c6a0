"""EphemeralJob: adds ephemeral containers to the Pods it selects."""
