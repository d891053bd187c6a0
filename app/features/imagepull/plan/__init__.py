"""Plans of image pulls: pure functions without I/O, clock or randomness."""
