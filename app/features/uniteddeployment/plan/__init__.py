"""Planning for UnitedDeployments: pure functions that decide what to do. No I/O, no clock, no randomness."""
