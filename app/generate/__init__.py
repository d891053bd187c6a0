"""Generated files. ``python -m app.generate`` writes them; with ``--check``, it only reports differences."""
