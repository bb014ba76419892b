"""What the start made is not walked through again, and cycles made later are still collected."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import gc, weakref
from qanat.server.garbage import spare_lasting_objects

class Thing: pass

lasting = [Thing() for _ in range(1000)]
spare_lasting_objects()
assert gc.get_freeze_count() > 1000
assert not any(isinstance(value, Thing) for value in gc.get_objects())
thing = Thing()
thing.self = thing
gone = weakref.ref(thing)
del thing
gc.collect()
assert gone() is None
"""


def test_what_the_start_made_is_left_alone_and_later_cycles_are_not() -> None:
    result = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
