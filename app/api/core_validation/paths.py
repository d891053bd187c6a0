"""Paths in a file system, as fields of a Pod may hold them."""

from __future__ import annotations

from app.kube.fielderrors import FieldError, Path, invalid


def backstep_errors(text: str, path: Path) -> list[FieldError]:
    """No ``..`` element."""
    return [invalid(path, text, "must not contain '..'")] if ".." in text.split("/") else []


def descending_errors(text: str, path: Path) -> list[FieldError]:
    """Relative, and without a ``..`` element."""
    absolute = [invalid(path, text, "must be a relative path")] if text.startswith("/") else []
    return absolute + backstep_errors(text, path)


def local_file_errors(text: str, path: Path) -> list[FieldError]:
    """The same, and not beginning with two dots, which the kubelet keeps for itself."""
    errors = descending_errors(text, path)
    if text.startswith("..") and not text.startswith("../") and text != "..":
        errors.append(invalid(path, text, "must not start with '..'"))
    return errors


def mode_errors(mode: int | None, path: Path) -> list[FieldError]:
    """Permission bits of a file."""
    if mode is None or 0 <= mode <= 0o777:
        return []
    return [invalid(path, mode, "must be a number between 0 and 0777 (octal), both inclusive")]
