"""A function's first calls in a new process, by many threads at once."""

import subprocess
import sys
from typing import Final

_TRIES: Final = 8
_PROGRAM: Final = """
import sys, threading
{preparing}
sys.setswitchinterval(1e-6)
begin = threading.Barrier(6)
ended = []
def called():
    begin.wait()
    {call}
    ended.append(1)
threads = [threading.Thread(target=called) for _ in range(6)]
for each in threads:
    each.start()
for each in threads:
    each.join()
assert len(ended) == len(threads)
"""


def crashes(preparing: str, call: str) -> list[str]:
    """What processes printed that crashed or whose threads raised. Each is a new one: types are described once."""
    program = _PROGRAM.format(preparing=preparing, call=call)
    ran = [
        subprocess.run(
            [sys.executable, "-X", "faulthandler", "-c", program], capture_output=True, text=True, check=False
        )
        for _ in range(_TRIES)
    ]
    return [each.stderr[-2000:] for each in ran if each.returncode]
