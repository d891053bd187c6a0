"""The plan of a StatefulSet: pure functions that decide. No I/O, no clock, no randomness."""
