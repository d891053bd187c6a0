"""Injection of sidecars into a new Pod. Pure, except for the index in ``selection``, which follows a watch."""
