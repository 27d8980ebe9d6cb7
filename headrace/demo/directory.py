"""The demo's data directory: kept from one run to the next, so that the second one starts at once.

A file in it, ``demo.json``, says that the directory is the demo's, how much data it is to hold, and whether the load
came to its end. Nothing is ever deleted here: a load that was broken off is taken up where it stopped.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from headrace.listening import StartFailed

USUAL = Path("headrace-data/demo")
NOTE = "demo.json"


@dataclass(frozen=True, slots=True)
class Contents:
    """What the directory is for: the generator's ``scale`` and ``seed``, and whether all of it has been ``loaded``."""

    scale: float
    seed: int
    loaded: bool = False


@contextmanager
def directory(given: Path | None, once: bool) -> Iterator[Path]:
    """The directory to use: the given one, or a temporary one for a run that ends by itself, else the usual one."""
    if given is None and once:
        with TemporaryDirectory(prefix="headrace-demo-") as temporary:
            yield Path(temporary)
    else:
        yield given or USUAL


def contents_of(path: Path, wanted: Contents) -> Contents:
    """What is in the directory; ``wanted``, where there is nothing yet.

    :raises StartFailed: it holds something else than a demo.
    """
    try:
        if path.is_dir() and any(path.iterdir()):
            return _read(path)
        path.mkdir(parents=True, exist_ok=True)
        note(path, wanted)
    except OSError as error:
        raise StartFailed(f'cannot use the directory "{path}": {error.strerror or error}') from error
    return wanted


def note(path: Path, contents: Contents) -> None:
    """Write down what the directory holds."""
    (path / NOTE).write_text(json.dumps(asdict(contents)), encoding="utf-8")


def _read(path: Path) -> Contents:
    try:
        return Contents(**json.loads((path / NOTE).read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise StartFailed(
            f'the directory "{path}" holds something else than a demo', hint="choose another with --data"
        ) from None
    except (ValueError, TypeError) as error:
        raise StartFailed(f'"{path / NOTE}" cannot be read: {error}', hint="remove the directory") from error
