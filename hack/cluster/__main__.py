"""``python3 -m hack.cluster``."""

import sys

from hack.cluster.cli import main

sys.exit(main(sys.argv[1:]))
