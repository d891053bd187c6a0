"""The ``pykruise`` command line."""
