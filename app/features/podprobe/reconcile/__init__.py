"""Probe controllers: markers, nodes and liveness."""
