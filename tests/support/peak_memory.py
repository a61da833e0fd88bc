"""The peak of a process's resident memory."""

from __future__ import annotations

import re
import resource
import sys
from pathlib import Path


def peak_memory() -> int:
    """
    Return the largest size of this process's resident memory in bytes.

    On Linux, `getrusage` of a process that was started by a larger one reports the larger one.
    """
    if sys.platform != "linux":
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) << 10
