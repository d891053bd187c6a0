"""ContainerRecreateRequest: restarts containers of a Pod without recreating the Pod."""
