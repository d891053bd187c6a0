"""Errors of the test cluster."""


class ClusterError(RuntimeError):
    """The test cluster could not be built, started or stopped; the message names the cause and the fix."""
