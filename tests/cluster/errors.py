"""What can go wrong with the test cluster: one exception, whose text says what to do."""


class ClusterError(RuntimeError):
    """The test cluster could not be built, started or stopped; the message names the cause and the way out."""
