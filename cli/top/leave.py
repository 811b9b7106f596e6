"""Ends a live screen: by the key q, by SIGTERM, and by Ctrl-C where SIGINT is not ignored.

The terminal is as it was before in each case. A shell's ``trap '' INT`` leaves SIGINT ignored in programs that it
starts, and then Python never raises KeyboardInterrupt.
"""

import asyncio
import os
import signal
import sys
import termios
import threading
import tty
from collections.abc import Callable, Coroutine
from contextlib import ExitStack, suppress
from typing import Any, Final

_LEAVES: Final = frozenset(b"qQ")


async def until_left(drawing: Coroutine[Any, Any, None]) -> None:
    """Draw until somebody ends it. Raises what the drawing raises."""
    left = asyncio.Event()
    drawn = asyncio.ensure_future(drawing)
    waited = asyncio.ensure_future(left.wait())
    with ExitStack() as undo:
        try:
            _on_signal(left.set, undo)
            _on_key(left.set, undo)
            await asyncio.wait((drawn, waited), return_when=asyncio.FIRST_COMPLETED)
        finally:
            # The screen is given back before the keys are.
            for task in (drawn, waited):
                task.cancel()
            await asyncio.wait((drawn, waited))
            failed = None if drawn.cancelled() else drawn.exception()
    if failed is not None:
        raise failed


def _on_signal(leave: Callable[[], None], undo: ExitStack) -> None:
    if threading.current_thread() is not threading.main_thread():
        return  # signals are the main thread's
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, leave)
    undo.callback(loop.remove_signal_handler, signal.SIGTERM)


def _on_key(leave: Callable[[], None], undo: ExitStack) -> None:
    """Call ``leave`` at its keys. Keys come one by one, and are not shown; none is read in the background, where
    reading would stop the process.
    """
    try:
        terminal = sys.stdin.fileno()
        before = termios.tcgetattr(terminal)
        if os.tcgetpgrp(terminal) != os.getpgrp():
            return
    except (OSError, ValueError, termios.error):
        return  # no terminal, or not the one that controls this process
    loop = asyncio.get_running_loop()

    def pressed() -> None:
        keys = b""
        with suppress(OSError):
            keys = os.read(terminal, 64)
        # An empty read means that the terminal is gone.
        if not keys or not _LEAVES.isdisjoint(keys):
            loop.remove_reader(terminal)
            leave()

    tty.setcbreak(terminal)
    undo.callback(termios.tcsetattr, terminal, termios.TCSADRAIN, before)
    loop.add_reader(terminal, pressed)
    undo.callback(loop.remove_reader, terminal)
