"""UnitedDeployment: one workload per subset of a topology, from one template."""
