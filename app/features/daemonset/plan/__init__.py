"""The plan of a DaemonSet: pure functions that decide. No I/O, no clock, no randomness."""
