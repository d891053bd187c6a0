"""Plans of probes: pure functions without I/O, clock or randomness."""
