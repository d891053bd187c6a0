"""What all tests share: fixtures and division of the levels that need a real cluster, and how hypothesis runs."""

from hypothesis import settings

pytest_plugins = ["tests.cluster.fixtures", "tests.cluster.sharing", "tests.cluster.shared", "tests.times"]

# How long an example takes says something about the machine, nothing about the code.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
