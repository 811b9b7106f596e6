"""Large blocks leave nothing behind when they are freed."""

import subprocess
import sys

LOOK = """
from kube.allocator import hold_little
hold_little()
def rss():
    return int(open("/proc/self/statm").read().split()[1]) * 4
before = rss()
large = [b"x" * 300_000 for _ in range(100)]
kept = [b"x" * 1000 for _ in range(20)]
middle = rss()
del large
print(middle - before, rss() - before)
"""


def test_large_blocks_go_back_when_they_are_freed() -> None:
    done = subprocess.run([sys.executable, "-c", LOOK], capture_output=True, text=True, check=True)
    held_kib, left_kib = map(int, done.stdout.split())
    assert held_kib > 20_000
    assert left_kib < 2_000
