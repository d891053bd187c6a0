"""Reproducible archives and checksums: the same files give the same bytes."""

from __future__ import annotations

import gzip
import hashlib
import tarfile
from pathlib import Path
from typing import Final

_SHARED_FOLDERS: Final = ("tmp", "var/tmp")


def write_tar(target: Path, folder: Path, epoch: int, prefix: str = "") -> None:
    """Write the files below ``folder`` to ``target``, compressed unless its name ends in .tar."""
    with target.open("wb") as file:
        if target.suffix == ".tar":
            _write(file, folder, epoch, prefix)
        else:
            with gzip.GzipFile(filename="", mode="wb", compresslevel=6, fileobj=file, mtime=epoch) as compressed:
                _write(compressed, folder, epoch, prefix)


def _write(file: object, folder: Path, epoch: int, prefix: str) -> None:
    with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as archive:  # type: ignore[call-overload]
        for path in sorted(folder.rglob("*")):
            name = path.relative_to(folder).as_posix()
            entry = tarfile.TarInfo(f"{prefix}{name}")
            entry.mtime = epoch
            if path.is_symlink():
                entry.type, entry.linkname, entry.mode = tarfile.SYMTYPE, str(path.readlink()), 0o777
                archive.addfile(entry)
            elif path.is_dir():
                entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if name in _SHARED_FOLDERS else 0o755
                archive.addfile(entry)
            else:
                status = path.stat()
                entry.size, entry.mode = status.st_size, 0o755 if status.st_mode & 0o100 else 0o644
                with path.open("rb") as content:
                    archive.addfile(entry, content)


def sha256(path: Path) -> str:
    """Return the SHA-256 checksum of a file in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_checksums(folder: Path) -> None:
    """Write SHA256SUMS for all other files in ``folder``, in the format of ``sha256sum --check``."""
    names = sorted(path.name for path in folder.iterdir() if path.name != "SHA256SUMS")
    (folder / "SHA256SUMS").write_text("".join(f"{sha256(folder / name)}  {name}\n" for name in names), "utf-8")
