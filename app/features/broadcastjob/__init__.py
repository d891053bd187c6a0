"""BroadcastJob: runs a Pod to completion on every matching node."""
