"""SidecarSet: injection into new Pods, revisions, status."""
