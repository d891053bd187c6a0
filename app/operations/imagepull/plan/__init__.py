"""The pure half: targets, tags, progress."""
