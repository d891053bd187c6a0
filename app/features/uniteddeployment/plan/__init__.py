"""The plan of a UnitedDeployment: pure functions that decide. No I/O, no clock, no randomness."""
