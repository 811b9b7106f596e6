"""``python -m hack.e2e``; see the package."""

import sys

from hack.e2e.tier import main

if __name__ == "__main__":
    sys.exit(main())
