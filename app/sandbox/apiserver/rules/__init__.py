"""Rules of built-in kinds: defaults, validation and immutable fields."""
