"""Injection of sidecars into a new Pod. Pure, except for the inputs of ``selection`` and ``prepared``."""
