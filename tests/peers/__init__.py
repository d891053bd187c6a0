"""Software of other projects against our manager, on demand: make test-peers."""
