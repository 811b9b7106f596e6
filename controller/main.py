"""``tessera-controller``: runs ``controller.cluster.process.process.Process`` as the command line says.

Exit codes: 0 stopped as asked, 1 could not go on, 2 a wrong flag or configuration.
"""

import asyncio
import gc
import logging
import os
import signal
import sys
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final

from controller.cluster.config.load import load
from controller.cluster.config.settings import ControllerConfig
from controller.cluster.process.flags import PROGRAM, Flags, TextRequested, UsageError, parse
from controller.cluster.process.process import Process, own_namespace
from controller.cluster.process.selfcheck import check_installation
from controller.cluster.process.uninstall import remove_finalizers, remove_placeholders
from kube import brokenpeers
from kube.access import load as connect
from kube.allocator import hold_little, read_little
from kube.client import Client
from kube.clock import SystemClock
from kube.errors import ConfigError as ClusterConfigError
from kube.errors import KubeError
from kube.listening.sockets import raise_file_limit
from kube.loglines import LogfmtFormatter
from yamlfile import ConfigError

log = logging.getLogger(__name__)

STOP_WITHIN_S = 1.8
_LARGE_BYTES: Final = 256 << 10
"""The size of large responses: pages of lists are larger, and most answers smaller."""


def main() -> None:
    """The console script."""
    raise_file_limit()
    hold_little(_LARGE_BYTES)
    read_little()
    code = run(sys.argv[1:], os.environ)
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    # A thread that still hangs (a resolver's, say) is not awaited.
    os._exit(code)


def run(argv: Sequence[str], env: Mapping[str, str]) -> int:
    """Runs a controller with ``argv`` (without the program's name) and ``env``, and returns its exit code."""
    try:
        flags = parse(argv, env)
        config = load(flags.config)
    except TextRequested as requested:
        sys.stdout.write(str(requested))
        return 0
    except (UsageError, ConfigError) as wrong:
        sys.stderr.write(f"{PROGRAM}: {wrong}\n")
        return 2
    _configure_logging(flags.log_level)
    if flags.remove_finalizers:
        return _remove_finalizers(flags)
    if flags.check_installation:
        return _check_installation(flags)
    for warning in config.without_effect:
        log.warning("%s", warning)
    log.info("policy %s, %s", config.policy.value, "the core alone" if flags.core_only else "with jobs and webhooks")
    try:
        return asyncio.run(_serve(config, flags))
    except ClusterConfigError as wrong:
        sys.stderr.write(f"{PROGRAM}: {wrong}\n")
        return 2
    except OSError as failed:
        log.error("cannot go on: %s", failed)  # noqa: TRY400 - the traceback says no more
        return 1
    except Exception:
        log.exception("cannot go on")
        return 1


def _configure_logging(level: str) -> None:
    """Sets up one handler on the root logger, to stderr. ``level`` is debug, info, warning or error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LogfmtFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    brokenpeers.install()


def _remove_finalizers(flags: Flags) -> int:
    namespace = flags.namespace or own_namespace()

    async def work(client: Client) -> bool:
        await remove_finalizers(client)
        await remove_placeholders(client, namespace)
        return True

    return _asked(flags, work, "finalizers are left")


def _check_installation(flags: Flags) -> int:
    namespace = flags.namespace or own_namespace()

    async def work(client: Client) -> bool:
        return await check_installation(client, namespace, SystemClock())

    return _asked(flags, work, "the installation could not be looked at")


def _asked(flags: Flags, work: Callable[[Client], Awaitable[bool]], otherwise: str) -> int:
    """Does one thing at the API server and returns the exit code; ``otherwise`` is the message if that fails on the
    way.
    """

    async def connected() -> bool:
        async with Client(connect(flags.kubeconfig)) as client:
            return await work(client)

    try:
        return 0 if asyncio.run(connected()) else 1
    except ClusterConfigError as wrong:
        sys.stderr.write(f"{PROGRAM}: {wrong}\n")
        return 2
    except KubeError as failed:
        log.error("%s: %s", otherwise, failed)  # noqa: TRY400 - the traceback says no more
        return 1


async def _serve(config: ControllerConfig, flags: Flags) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _on_stop, stop)
    # Objects here live long and have no reference cycles: full collections would only pause the loop.
    gc.freeze()
    gc.set_threshold(50_000, 50, 100)
    return await Process(config, flags).run(stop)


def _on_stop(stop: asyncio.Event) -> None:
    log.info("stopping")
    stop.set()
    # A last resort: the process ends even if a task hangs.
    timer = threading.Timer(STOP_WITHIN_S, os._exit, (0,))
    timer.daemon = True
    timer.start()


if __name__ == "__main__":
    main()
