"""Rules for built-in kinds: defaults, validation and immutable fields."""
