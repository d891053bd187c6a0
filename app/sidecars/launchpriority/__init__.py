"""Container launch priority: the start barrier put into a Pod at admission."""
