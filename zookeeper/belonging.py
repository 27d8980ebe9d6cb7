"""Which deployment a data directory belongs to, written into it once.

The rows are in data directories and the recipe that gives them meaning is in ZooKeeper. Bringing the rows of one
deployment under the recipe of another would drop tables, so it is refused before anything is opened.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from tempfile import NamedTemporaryFile

from zookeeper.errors import WrongDeployment

FILE = "deployment.json"


def claim(directory: Path, deployment: str, id: str) -> None:
    """Make the directory the deployment's if it is nobody's yet. It must exist; several processes may try at once.

    ``id`` is the authority's ``deployment_id``: a deployment that was made anew under the old name is another one.

    :raises WrongDeployment: it belongs to another.
    """
    path = directory / FILE
    mine = {"deployment": deployment, "id": id}
    if not path.exists():
        # Written whole beside it and then linked, which fails where somebody else was first.
        with NamedTemporaryFile("w", dir=directory, prefix=FILE, delete=False) as file:
            json.dump(mine, file)
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(file.name, path)
        except FileExistsError:
            pass  # Then what it says is looked at below.
        finally:
            os.unlink(file.name)
    found = owner(directory)
    if found == (deployment, id):
        return
    if found[0] != deployment:
        raise WrongDeployment(
            f'the data in "{directory}" belongs to deployment "{found[0]}", not to "{deployment}"',
            hint="choose another with --data, or name its deployment with --deployment",
        )
    raise WrongDeployment(
        f'the data in "{directory}" belongs to another deployment "{deployment}" than the one in this ZooKeeper',
        hint="is it the right --zookeeper? If ZooKeeper has lost its data, restore it: docs/operations.md",
    )


def owner(directory: Path) -> tuple[str, str]:
    """Name and id of the deployment that the directory belongs to. Raises WrongDeployment where that is unreadable."""
    path = directory / FILE
    try:
        found = json.loads(path.read_text("utf-8"))
        return str(found["deployment"]), str(found["id"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise WrongDeployment(f'cannot tell whose "{directory}" is: "{path}" is damaged') from error
