"""PersistentPodState: Pods return to nodes like those they ran on."""
