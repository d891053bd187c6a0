"""The plans of probes: pure functions that decide. No I/O, no clock, no randomness."""
