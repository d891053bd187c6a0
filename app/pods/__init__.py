"""The shared Pod machinery every workload and sidecar slice builds on. Pure where it can be."""
