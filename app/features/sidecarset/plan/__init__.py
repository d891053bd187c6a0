"""The plan of a SidecarSet: pure functions that decide about its rollout. No I/O, no clock, no randomness."""
