"""Sidecar terminator: stops the sidecars of Pods whose main containers have completed."""
