"""Core types inside our kinds: defaults and validation of Pod templates."""
