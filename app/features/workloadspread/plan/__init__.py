"""The plan of a WorkloadSpread: pure functions that decide. No I/O, no clock, no randomness."""
