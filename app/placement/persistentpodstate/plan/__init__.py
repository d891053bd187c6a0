"""What is decided about PersistentPodStates: pure functions."""
