"""Injects faults while Pods are created at a constant rate: `python -m tests.chaos --seconds 60`."""
