"""``headrace up`` over fake parts."""

from __future__ import annotations

import sys
from pathlib import Path

from headrace.cli import main
from headrace.cluster import child, supervisor

supervisor.PROGRAM = (sys.executable, str(Path(__file__).with_name("fake_part.py")))
child.SETTLED_SECONDS = 3600.0  # A part that dies at its start takes long for that on a busy machine.
supervisor.CONTROLLER_GRACE = 60.0  # Nor is one to be killed here that ends late.
main()
