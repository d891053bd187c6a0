"""SidecarSet: injection into new Pods, roll-outs to running ones, revisions, status."""
