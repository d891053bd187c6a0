"""PersistentPodState: recreated Pods return to nodes with the same labels as before."""
