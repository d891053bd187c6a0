"""What a DaemonSet does next: pure functions from Pods, nodes and settings."""
