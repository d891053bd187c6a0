"""Advanced StatefulSet: Pods with stable identities, updated in place where possible."""
