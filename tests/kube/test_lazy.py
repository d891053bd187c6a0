"""Packages whose modules are imported when one of their names is asked for."""

from __future__ import annotations

from importlib import import_module

import pytest


@pytest.mark.parametrize("package", ["app.slices", "app.workloads.engine"])
def test_every_name_of_the_package_is_found(package: str) -> None:
    module = import_module(package)
    for name in module.__all__:
        assert getattr(module, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        module.nonsense  # noqa: B018
