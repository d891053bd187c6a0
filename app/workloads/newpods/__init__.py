"""What every new Pod of a workload gets: a readiness gate with its first condition, and no managed fields if asked."""
