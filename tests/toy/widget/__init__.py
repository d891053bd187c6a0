"""The Widget feature."""
