"""WorkloadSpread: puts the Pods of one workload into subsets, each with its nodes, its places and its patch."""
