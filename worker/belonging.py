"""The name of a data directory, and the deployment it belongs to: written into it once.

The rows are in data directories and the recipe that gives them meaning is in ZooKeeper. Bringing the rows of one
deployment under the recipe of another would drop tables, so it is refused before anything is opened.

The directory has a name of its own because its path says too little: ``/var/lib/headrace`` is another disk on each
machine, and one and the same where it is a network's. Only workers that find the same name can take over each other's
shards. A directory that is moved, or restored from a back-up, takes its name along; of copies only one may be used.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any
from uuid import uuid4

from domains.archive.manifest import opened, sealed
from zookeeper.errors import ForeignDeployment

FILE = "deployment.json"
RECIPE = "recipe.json"
"""A server that is not a cluster has this file. A cluster would drop its tables, as any that its own recipe lacks."""


def deployment_of(directory: Path) -> str | None:
    """The name of the deployment that a directory belongs to; None where it is nobody's, or does not tell."""
    try:
        return str(_read(directory / FILE)["deployment"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def claim(directory: Path, deployment: str, id: str) -> str:
    """Make the directory the deployment's if it is nobody's yet; answers what it calls itself. It must exist; several
    processes may try at once.

    ``id`` is the authority's ``deployment_id``: a deployment that was made anew under the old name is another one.

    :raises WrongDeployment: it belongs to another.
    """
    path = directory / FILE
    if not path.exists():
        if (directory / RECIPE).exists():
            raise ForeignDeployment(
                f'the data in "{directory}" is that of headrace serve, not of a cluster',
                hint="choose another directory with --data",
            )
        mine = {"deployment": deployment, "id": id, "directory": uuid4().hex}
        # Written whole beside it and then linked, which fails where somebody else was first.
        with NamedTemporaryFile("w", dir=directory, prefix=FILE, delete=False) as file:
            json.dump(sealed(mine), file)
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(file.name, path)
        except FileExistsError:
            pass  # Then what it says is looked at below.
        finally:
            os.unlink(file.name)
    try:
        found = _read(path)
        owner, owner_id, name = str(found["deployment"]), str(found["id"]), str(found["directory"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ForeignDeployment(
            f'cannot tell whose "{directory}" is: "{path}" is damaged',
            hint="bring this one file back from a back-up of the directory",
        ) from error
    if owner != deployment:
        raise ForeignDeployment(
            f'the data in "{directory}" belongs to deployment "{owner}", not to "{deployment}"',
            hint="choose another with --data, or name its deployment with --deployment",
        )
    if owner_id != id:
        raise ForeignDeployment(
            f'the data in "{directory}" belongs to another deployment "{deployment}" than the one in this ZooKeeper',
            hint="is it the right --zookeeper? If ZooKeeper has lost its data, restore it: docs/operations.md",
        )
    return name


def _read(path: Path) -> dict[str, Any]:
    """Raises OSError, and ValueError where it differs from what was written."""
    return opened(json.loads(path.read_text("utf-8")))
