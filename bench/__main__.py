"""``python -m bench``: every measurement in turn except the soak, which takes 20 minutes, or those named."""

from __future__ import annotations

import importlib
import pkgutil
import sys

import bench


def main() -> None:
    """Run the named modules of this package, or all that have a ``main``, without the soak."""
    names = sys.argv[1:] or [
        module.name for module in pkgutil.iter_modules(bench.__path__) if module.name not in ("__main__", "soak")
    ]
    sys.argv = sys.argv[:1]
    for name in names:
        module = importlib.import_module(f"bench.{name}")
        if hasattr(module, "main"):
            print(f"\n## {name}\n", flush=True)
            module.main()


if __name__ == "__main__":
    main()
