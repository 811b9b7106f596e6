"""Large blocks leave nothing behind when they are freed, and a TLS connection takes small ones."""

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


READ = """
import asyncio, ssl
from kube.allocator import read_little
read_little()
async def look():
    made = asyncio.sslproto.SSLProtocol(asyncio.get_running_loop(), None, ssl.create_default_context(), None)
    print(len(made.get_buffer(-1)), made.max_size)
asyncio.run(look())
"""


def test_a_tls_connection_reads_into_a_small_buffer() -> None:
    done = subprocess.run([sys.executable, "-c", READ], capture_output=True, text=True, check=True)
    buffer, block = map(int, done.stdout.split())
    assert buffer == block == 64 << 10
