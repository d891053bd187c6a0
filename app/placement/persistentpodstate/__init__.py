"""PersistentPodState: served in both versions."""
