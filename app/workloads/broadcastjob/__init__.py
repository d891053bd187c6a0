"""BroadcastJob: one Pod on every matching node, once."""
