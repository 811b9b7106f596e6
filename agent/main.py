"""``tessera-agent``. The settings that limit memory are made before anything large is imported."""

import os
import sys

from agent.process import heap
from kube.allocator import hold_little, read_little
from kube.listening.sockets import raise_file_limit


def main() -> None:
    """The console script."""
    raise_file_limit()
    hold_little()
    with heap.loading():
        import logging

        from agent.command import run

        read_little()
    # Whatever hangs in a driver call hangs in a daemon thread: leave without waiting for it.
    code = run(sys.argv[1:], os.environ)
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
