"""What is special about built-in kinds: defaults, validation, and what may not change."""
