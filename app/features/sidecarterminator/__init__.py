"""Sidecar terminator: ends the sidecars of Pods whose main containers have completed."""
