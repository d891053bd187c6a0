"""BroadcastJob: runs a Pod to completion on every eligible node."""
