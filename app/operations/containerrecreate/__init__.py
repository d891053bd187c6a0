"""ContainerRecreateRequest."""
