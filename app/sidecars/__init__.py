"""What joins a Pod from outside: SidecarSet, container launch priority."""
