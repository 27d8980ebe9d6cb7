"""What a drill needs of the machine, and whether it may have it."""

from __future__ import annotations

import os
import shutil
import subprocess

from headrace.errors import HeadraceError


class NotPossible(HeadraceError):
    """This machine does not allow the drill. Nothing was started."""

    code = "not_possible"


def need_root(drill: str, what: str) -> None:
    if os.geteuid() != 0:
        raise NotPossible(f'"{drill}" is not possible here, because {what} takes root', hint="run it as root")


def need_program(drill: str, name: str) -> None:
    if shutil.which(name) is None:
        raise NotPossible(f'"{drill}" is not possible here, because there is no program "{name}"')


def run(*command: str) -> None:
    """Run a command of the system. Raises NotPossible with what it says."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise NotPossible(f'not possible here, because "{" ".join(command)}" says: {done.stderr.strip()[:300]}')


def run_anyway(*command: str) -> None:
    """For tidying up: what is gone already is as good."""
    subprocess.run(command, capture_output=True, check=False)
