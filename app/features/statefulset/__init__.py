"""Advanced StatefulSet: Pods with identity, updated in place where possible."""
