"""The pure half: probes and marks."""
