"""The manager process: flags, feature gates, wiring, health and metrics."""
