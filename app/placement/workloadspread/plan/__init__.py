"""What WorkloadSpread decides. Pure."""
