"""WorkloadSpread: spreads the Pods of a workload over subsets of nodes."""
