"""SidecarSet: injects sidecar containers into Pods and updates them in place."""
