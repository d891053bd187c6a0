"""Giving memory back that only the start has needed: an agent runs on every node, for months, and mostly waits.

Half of what a process of ours has in memory are pages of programs and libraries that are read once, while everything is
imported. The kernel keeps them mapped until memory is short; unmapped, they come back one by one as they are needed.
"""

from __future__ import annotations

import ctypes
import gc
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Final

logger = logging.getLogger(__name__)

_MADV_DONTNEED: Final = 4
_SMAPS: Final = Path("/proc/self/smaps")


def unmodified_mappings(smaps: str) -> Iterator[tuple[int, int]]:
    """Address and length of mapped files of which no page was changed, so that each can be read from its file again."""
    start = length = 0
    is_file = False
    for line in smaps.splitlines():
        name, _, rest = line.partition(" ")
        if not name.endswith(":"):
            fields = line.split()
            first, _, last = name.partition("-")
            start, length = int(first, 16), int(last, 16) - int(first, 16)
            # Not writable, private, and a file of its own.
            is_file = len(fields) >= 6 and fields[1][1] == "-" and fields[1][3] == "p" and fields[5].startswith("/")
        elif is_file and name in ("Private_Dirty:", "Anonymous:", "Swap:", "Locked:") and rest.split()[0] != "0":
            is_file = False
        elif is_file and name == "VmFlags:":
            yield start, length


def give_back() -> None:
    """Give back what can be read again, and what the heap does not use. What cannot be done is left."""
    gc.collect()
    try:
        library = ctypes.CDLL(None, use_errno=True)
        madvise = library.madvise
        madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
        for address, length in list(unmodified_mappings(_SMAPS.read_text("ascii", "replace"))):
            madvise(address, length, _MADV_DONTNEED)
        library.malloc_trim(0)
    except (OSError, AttributeError, ValueError) as error:
        logger.debug("memory cannot be given back: %s", error)
