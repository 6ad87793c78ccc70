"""``python -m ownstep`` is the ``ownstep`` command."""

from ownstep.cli import main

main()
