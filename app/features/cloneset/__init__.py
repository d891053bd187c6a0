"""CloneSet: interchangeable Pods, updated in place where possible."""
