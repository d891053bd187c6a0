"""The pure half: what should be where, and how what happened is reported."""
