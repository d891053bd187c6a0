"""The plan of a budget: pure functions that decide. No I/O, no clock, no randomness."""
