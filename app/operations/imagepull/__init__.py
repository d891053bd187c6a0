"""Image pulling."""
