"""CloneSet: Pods without identity, updated in place where possible."""
