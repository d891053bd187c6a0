"""Planning for SidecarSets: pure functions that decide what to do. No I/O, no clock, no randomness."""
