"""Whether the server's packages are the ones that Python finds.

They have plain names (``api``, ``worker``, …), and an application's package of the same name that comes first on
``sys.path`` would be loaded in their place, and fail somewhere in the middle. So the error comes before any of them is
loaded: this file imports none.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from headrace.errors import Unavailable

PACKAGES = ("api", "controller", "domains", "migrations", "worker", "zookeeper")
HERE = Path(__file__).resolve().parents[1]


def check_packages() -> None:
    """Raises Unavailable, naming the package that is in the way."""
    for name in PACKAGES:
        found = _place_of(name)
        if found is not None and found.parent != HERE:
            raise Unavailable(
                f'the package "{name}" in {found.parent} is in the way of the server\'s own of that name',
                hint='run the server as a process of its own ("headrace serve") and speak to it with headrace_client, '
                "or rename the package",
            )


def _place_of(name: str) -> Path | None:
    """The directory, or the file, that an import would load or has loaded; None where it is not installed at all."""
    try:
        spec = find_spec(name)
    except ValueError:  # It was loaded by something that says nothing of where from.
        return None
    if spec is None:
        return None
    folders = list(spec.submodule_search_locations or ())
    place = folders[0] if folders else spec.origin
    return None if place is None else Path(place).resolve()
