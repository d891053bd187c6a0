"""The Kruise kinds: fields, defaults, validation, conversion, schema; and every name they use. Does no I/O."""
