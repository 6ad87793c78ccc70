"""Python runs this first in every process of a test's federation: Flower's programs wait less between two looks.

A SuperNode looks for messages every three seconds, and for its app's reply every half: most of a round on one machine
is that wait. A SuperLink takes heartbeats ten seconds apart or more, so that it misses a dead site after twenty at the
earliest. What they do when they look, and what they do about a site that is gone, stays as it is.
"""

import os
import sys
import time

LONGEST = 0.2
"""Seconds between two looks."""


def hasten():
    """Shorten the waits of this process."""
    from flwr.common import constant

    constant.HEARTBEAT_MIN_INTERVAL = 1
    slowly = time.sleep
    time.sleep = lambda seconds: slowly(min(seconds, LONGEST))


if os.path.basename(sys.argv[0]) in ("flower-supernode", "flower-superlink"):
    hasten()
