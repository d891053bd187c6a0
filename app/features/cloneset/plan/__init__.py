"""The plan of a CloneSet: pure functions that decide. No I/O, no clock, no randomness."""
