"""What Widgets do."""
