"""Memory needed only for startup is released."""

from __future__ import annotations

import subprocess
import sys

from app.daemon.main import unmodified_mappings

MAPS = """\
55d000000000-55d000001000 r-xp 00000000 fe:00 1  /usr/bin/program
Private_Dirty:         0 kB
Anonymous:             0 kB
VmFlags: rd ex mr mw me
55d000001000-55d000003000 r--p 00000000 fe:00 1  /usr/lib/relocated.so
Private_Dirty:         8 kB
Anonymous:             8 kB
VmFlags: rd mr mw me
55d000003000-55d000004000 rw-p 00000000 fe:00 1  /usr/lib/data.so
Private_Dirty:         0 kB
VmFlags: rd wr mr mw me
55d000004000-55d000005000 r--s 00000000 fe:00 1  /usr/lib/shared
Private_Dirty:         0 kB
VmFlags: rd mr mw me
7ffd00000000-7ffd00001000 r-xp 00000000 00:00 0  [vdso]
Private_Dirty:         0 kB
VmFlags: rd ex mr mw me
7fff00000000-7fff00001000 r--p 00000000 00:00 0
Private_Dirty:         0 kB
VmFlags: rd mr mw me
"""


def test_only_reloadable_pages_are_released() -> None:
    assert list(unmodified_mappings(MAPS)) == [(0x55D000000000, 0x1000)]
    assert list(unmodified_mappings("")) == []


def test_a_process_keeps_running_with_less_memory() -> None:
    script = """
import re, ssl, json, hashlib
from app.daemon import flags
from app.daemon.main import give_back
def resident():
    return int(re.search(r"VmRSS:\\s+(\\d+)", open("/proc/self/status").read())[1])
before = resident()
give_back()
after = resident()
assert ssl.create_default_context() and json.loads("[1]") == [1] and hashlib.sha256(b"x").hexdigest()
flags.parser().parse_args([])
assert after < before, (before, after)
print("well")
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.stdout == "well\n", done.stderr
