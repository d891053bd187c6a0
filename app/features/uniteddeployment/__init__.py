"""UnitedDeployment: one workload split into subsets of nodes."""
