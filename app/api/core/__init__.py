"""Core types embedded in our kinds: defaults and validation of Pod templates."""
