"""UnitedDeployment: one workload per subset of the nodes, all from the same template."""
