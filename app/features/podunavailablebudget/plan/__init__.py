"""Plan of a budget: pure functions without I/O, clock or randomness."""
