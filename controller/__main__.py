"""``python -m controller`` is ``tessera-controller``."""

from controller.main import main

main()
