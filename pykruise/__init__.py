"""pykruise as a library: the typed client of :mod:`app.client`."""

from app.client import *  # noqa: F403
from app.client import __all__ as __all__
from app.client.kinds import *  # noqa: F403 - again, for type checkers that do not follow lists of names
