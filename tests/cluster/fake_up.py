"""``headrace up`` over fake parts."""

from __future__ import annotations

import sys
from pathlib import Path

from headrace.cli import main
from headrace.cluster import supervisor

supervisor.PROGRAM = (sys.executable, str(Path(__file__).with_name("fake_part.py")))
main()
