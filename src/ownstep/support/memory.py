"""How much memory there is."""

from __future__ import annotations

import math
import os


def free_memory() -> float:
    """Bytes that can still be had, as far as the system says; infinite where it does not."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            told = dict(line.split(":", 1) for line in file)
        return 1024.0 * float(told["MemAvailable"].split()[0])
    except (OSError, KeyError, ValueError):
        pass
    try:
        return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, OSError, ValueError):
        return math.inf
