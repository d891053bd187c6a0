"""Launch priority: starts the containers of a Pod in order."""
