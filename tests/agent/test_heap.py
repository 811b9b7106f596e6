"""What the start has used up goes back, once; a scrape's text leaves nothing behind."""

import subprocess
import sys

LOOK = """
from agent import heap
heap.hold_little()
def rss():
    return int(open("/proc/self/statm").read().split()[1]) * 4
before = rss()
large = [b"x" * 300_000 for _ in range(100)]
kept = [b"x" * 1000 for _ in range(20)]
middle = rss()
del large
print(middle - before, rss() - before)
heap.give_back()
"""


def test_large_blocks_go_back_when_they_are_freed() -> None:
    done = subprocess.run([sys.executable, "-c", LOOK], capture_output=True, text=True, check=True)
    held_kib, left_kib = map(int, done.stdout.split())
    assert held_kib > 20_000
    assert left_kib < 2_000
