"""The controllers of probes: markers, nodes and liveness."""
