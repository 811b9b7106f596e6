"""What the start has used up goes back, once; what was written stays."""

import subprocess
import sys

import pytest

from agent.process.heap import untouched

LOADED = """
import gc, weakref
from agent.process import heap
class Ring:
    def __init__(self): self.me = self
usual = gc.get_threshold()[0]
with heap.loading():
    kept = [[n] for n in range(1000)]
    left = weakref.ref(Ring())
    rare = gc.get_threshold()[0] // usual
gc.collect()
print(rare, gc.get_threshold()[0] == usual, gc.get_freeze_count() > len(kept), left() is None)
heap.give_back()
print(left() is None, gc.get_freeze_count() > len(kept))
"""


def test_garbage_is_looked_for_seldom_while_loading_and_that_of_loading_goes_back_at_the_end() -> None:
    done = subprocess.run([sys.executable, "-c", LOADED], capture_output=True, text=True, check=True)
    loaded, given_back = done.stdout.splitlines()
    rare, *rest = loaded.split()
    assert int(rare) > 10
    assert rest == ["True", "True", "False"]
    assert given_back == "True True"


PAGES = """
import ctypes, ssl
from agent.process import heap
def resident(part):
    found = [block for block in open("/proc/self/smaps").read().split("VmFlags") if part in block]
    return sum(int(block.split("Rss:")[1].split()[0]) for block in found)
ssl.create_default_context()
before = resident("libcrypto")
heap.give_back()
after = resident("libcrypto")
ssl.create_default_context()  # and it still works
import decimal, grpc.aio
print(before, after)
"""


def test_pages_of_libraries_that_only_the_start_needed_go_back_and_the_libraries_still_work() -> None:
    done = subprocess.run([sys.executable, "-c", PAGES], capture_output=True, text=True, check=True)
    before_kib, after_kib = map(int, done.stdout.split())
    assert before_kib > 1_500
    assert after_kib < before_kib / 2


def smaps(
    access: str = "r-xp", inode: int = 7, path: str = "/usr/lib/libssl.so.3", anonymous: int = 0, swap: int | None = 0
) -> list[str]:
    rows = [f"7f0000001000-7f0000003000 {access} 00004000 fe:00 {inode}                     {path}", "Size:    8 kB"]
    rows += ["Private_Dirty:         0 kB", f"Anonymous:    {anonymous} kB"]
    rows += [] if swap is None else [f"Swap:         {swap} kB", "SwapPss:      0 kB"]
    return [*rows, "VmFlags: rd ex mr mw me"]


def test_code_and_constants_that_nobody_wrote_to_go_back() -> None:
    rows = [*smaps(), *smaps(access="r--p")]
    assert list(untouched(rows)) == [(0x7F0000001000, 0x7F0000003000)] * 2


@pytest.mark.parametrize(
    "other",
    [
        smaps(access="rw-p"),
        smaps(access="rwxp"),
        smaps(access="r--s"),
        smaps(inode=0, path=""),
        smaps(inode=0, path="[vdso]"),
        smaps(path="/dev/nvidia0"),
        smaps(path="/memfd:x (deleted)"),
        smaps(anonymous=4),
        smaps(swap=4),
        smaps(swap=None),
    ],
)
def test_nothing_else_goes_back(other: list[str]) -> None:
    """Relocated constants above all: once dropped they would come back as they are in the file."""
    assert list(untouched(other)) == []
    assert len(list(untouched([*other, *smaps(), *other]))) == 1
