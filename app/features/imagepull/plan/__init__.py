"""The plans of image pulls: pure functions that decide. No I/O, no clock, no randomness."""
