"""Widget: so many Pods of one colour. Fields, defaults, validation."""
