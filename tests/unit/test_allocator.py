"""Memory of large buffers goes back to the system when they are freed, though small things stand behind them."""

import ctypes
import subprocess
import sys

import pytest

MIB = 1 << 20
#: After a large buffer was freed, many of a mebibyte; the last one stays.
PROGRAM = """
import sys
from disqued.tap import tune_allocator

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096

if sys.argv[1] == "tuned":
    tune_allocator()
bytearray(b"x") * (20 << 20)
before = resident()
kept = [bytearray(b"x") * (1 << 20) for _ in range(100)]
del kept[:-1]
print(resident() - before)
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="only glibc keeps them")
def test_large_buffers_are_given_back_when_they_are_freed() -> None:
    def grown(how: str) -> int:
        done = subprocess.run([sys.executable, "-c", PROGRAM, how], check=True, capture_output=True, text=True)
        return int(done.stdout)

    assert grown("tuned") < 10 * MIB
    assert grown("as it is") > 50 * MIB, "glibc does so by itself now: `tune_allocator` can go"
