"""The feature by which the simulation watches workloads: each run has it in its list."""
