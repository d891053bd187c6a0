"""What all tests share: the fixtures of the levels that need a real cluster."""

pytest_plugins = ["tests.cluster.fixtures"]
