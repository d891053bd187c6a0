"""Probes in containers."""
