"""What features share about Pods."""
