"""``headrace up`` for a drill: some parts are started in another way (behind a proxy, in a namespace).

``python -m loadgen.drills.supervised '{"worker-3": {"prefix": […], "environment": {…}}}' --data DIR …``
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from headrace.cluster.child import ClusterPart
from headrace.cluster.supervisor import up
from headrace.errors import HeadraceError
from headrace.settings import load


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m loadgen.drills.supervised")
    parser.add_argument("special", type=json.loads)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--zookeeper")
    parser.add_argument("--mysql-port", type=int)
    for name in ("port", "workers", "shards", "controllers", "zookeepers", "apis"):
        parser.add_argument(f"--{name}", type=int)
    given = vars(parser.parse_args())
    special: dict[str, dict[str, Any]] = given.pop("special")

    def altered(part: ClusterPart) -> ClusterPart:
        own = special.get(part.name, {})
        return replace(
            part,
            command=(*own.get("prefix", ()), *part.command),
            environment={**part.environment, **own.get("environment", {})},
        )

    try:
        up(load(None, **given), lambda running: print(running.url, flush=True), print, altered=altered)
    except HeadraceError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    main()
