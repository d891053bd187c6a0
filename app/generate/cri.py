"""``python -m app.generate.cri`` writes runtime_pb2 from runtime.proto; with ``--check``, it only reports differences.

The result is committed, so that the compiler is needed only to change the proto file.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).parent.parent / "daemon" / "cri"
PROTO: Final = "runtime.proto"
FILES: Final = ("runtime_pb2.py", "runtime_pb2.pyi")


def generated() -> Mapping[str, str]:
    """Return the generated files by name."""
    from grpc_tools import protoc

    with tempfile.TemporaryDirectory() as folder:
        arguments = ["protoc", f"-I{FOLDER}", f"--python_out={folder}", f"--pyi_out={folder}", PROTO]
        if protoc.main(arguments) != 0:
            raise SystemExit(f"{FOLDER / PROTO} cannot be compiled")
        return {name: Path(folder, name).read_text("utf-8") for name in FILES}


def main(arguments: list[str] | None = None) -> int:
    """Run the command. Exit code 1 means that the files do not match the proto file."""
    parser = argparse.ArgumentParser(prog="python -m app.generate.cri", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if the files differ")
    options = parser.parse_args(arguments)
    wanted = generated()
    stale = [
        name
        for name, text in wanted.items()
        if not (FOLDER / name).exists() or (FOLDER / name).read_text("utf-8") != text
    ]
    if not options.check:
        for name in stale:
            (FOLDER / name).write_text(wanted[name], "utf-8")
        return 0
    for name in stale:
        sys.stderr.write(f"{FOLDER / name} does not match {PROTO}; run `make generate`\n")
    return 1 if stale else 0


if __name__ == "__main__":
    raise SystemExit(main())
