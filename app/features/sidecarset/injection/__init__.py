"""Injection of sidecars into a new Pod: pure, except for what ``selection`` and ``prepared`` are given."""
