"""Plan of a WorkloadSpread: pure functions without I/O, clock or randomness."""
