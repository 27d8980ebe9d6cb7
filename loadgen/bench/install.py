"""``python -m loadgen.bench.install``: MariaDB, PostgreSQL and Redis from Debian's packages, where they are missing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

from loadgen.bench.servers import PACKAGES, missing

WITHIN = 1800


def install() -> int:
    """Exit code."""
    wanted = [package for program, package in PACKAGES.items() if missing(program)]
    if not wanted:
        print("MariaDB, PostgreSQL and Redis are there")
        return 0
    by_hand = f"apt-get install --no-install-recommends {' '.join(wanted)}"
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        print(f"missing: {', '.join(wanted)}; as root, on Debian: {by_hand}")
        return 1
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (["apt-get", "update", "-qq"], ["apt-get", "install", "-y", "-qq", *by_hand.split()[2:]]):
        done = subprocess.run(command, env=quiet, timeout=WITHIN, check=False)
        if done.returncode:
            print(f"failed: {' '.join(command)}")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(install())
