"""``headrace up``, or another supervisor, whose parts are forks of it, which has loaded the code: each part of its own
takes two seconds of the processor for that. ``test_real_cluster.py`` starts the parts as they are.

``python forked_parts.py -m headrace up …``
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import traceback
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

sys.path.insert(1, str(Path(__file__).parents[2]))

from headrace.cluster.supervisor import PROGRAM
from tests.told_process import LOADED, python

execute = asyncio.create_subprocess_exec


async def fork(*command: str, **options: Any) -> asyncio.subprocess.Process:
    """As ``create_subprocess_exec``, where what is called in the child before the program never returns to it."""
    if command[: len(PROGRAM)] != PROGRAM:
        return await execute(*command, **options)
    return await execute(*command, **options, preexec_fn=lambda: part(command[1:], options["env"], options["pass_fds"]))


def part(arguments: Sequence[str], environment: Mapping[str, str], sockets: Sequence[int]) -> NoReturn:
    code: object = 1
    try:
        for descriptor in map(int, os.listdir("/proc/self/fd")):
            if descriptor > 2 and descriptor not in sockets:
                try:
                    os.close(descriptor)
                except OSError:
                    continue  # That of the list itself.
        signal.set_wakeup_fd(-1)
        for each in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(each, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        python([*arguments], environment)
        code = 0
    except SystemExit as end:
        code = end.code or 0
    except BaseException:
        traceback.print_exc()
    finally:
        threading._shutdown()  # type: ignore[attr-defined]
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(code if isinstance(code, int) else 1)


if __name__ == "__main__":
    for each in LOADED:
        import_module(each)
    asyncio.create_subprocess_exec = fork  # type: ignore[assignment]
    python(sys.argv[1:], dict(os.environ))
