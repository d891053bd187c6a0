"""User scenarios driven with kubectl, the same on every level that supports them."""
