"""``python -m kafkascan``."""

import sys

from kafkascan.cli import main

sys.exit(main())
