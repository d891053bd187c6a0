"""pykruise as a library: the typed client of :mod:`app.client`."""

from app.client import *  # noqa: F403
from app.client import __all__ as __all__
