"""What all tests share: fixtures and division of the levels that need a real cluster, and how hypothesis runs."""

from hypothesis import settings

from app.manager.slices import slices

pytest_plugins = [
    "tests.cluster.fixtures",
    "tests.cluster.sharing",
    "tests.cluster.shared",
    "tests.times",
    "tests.seeds",
]

# Conversion knows the kinds of a build once its slices are loaded, as in every process of ours.
slices()

# How long an example takes says something about the machine, nothing about the code.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
