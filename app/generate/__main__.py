"""``python -m app.generate`` writes every generated file; with ``--check`` it only compares."""

import sys

from app.generate.files import main

sys.exit(main())
