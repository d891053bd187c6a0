"""What is special about single built-in kinds: defaults, what the server sets, what may not change."""
