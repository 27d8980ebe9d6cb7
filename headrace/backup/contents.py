"""What a back-up says of itself. It is written last: a directory without it is no whole back-up."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from domains.archive import ArchiveError, SegmentCorrupt, SegmentMissing
from domains.sealed import opened, sealed
from worker.archive.place import Place

FORMAT = 1
FILE = "backup.json"


@dataclass(frozen=True, slots=True)
class Contents:
    time: str
    """When it was begun."""
    positions: dict[str, int]
    """Of each base shard: what the back-up has reaches to here."""
    shards: int
    """Of the deployment."""
    files: dict[str, str]
    """The digest of every file."""

    def write(self, place: Place) -> None:
        place.replace(FILE, json.dumps(sealed({"format": FORMAT, **asdict(self)}), indent=1).encode())


def read_contents(place: Place) -> Contents | None:
    """None where the place is no back-up. Raises ArchiveError where it is damaged."""
    data = place.read(FILE)
    if data is None:
        return None
    try:
        document = opened(json.loads(data))
        if document.pop("format") != FORMAT:
            raise ArchiveError(f'"{place.shown(FILE)}" is of another version of headrace')
        return Contents(**document)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ArchiveError(f'"{place.shown(FILE)}" is damaged: {error!r}') from error


def damaged_files(place: Place, contents: Contents) -> Iterator[ArchiveError]:
    """What is missing, or is not what was backed up."""
    for file, digest in contents.files.items():
        if place.size(file) is None:
            yield SegmentMissing(f'"{place.shown(file)}" is missing from the back-up')
        elif place.digest(file) != digest:
            yield SegmentCorrupt(f'"{place.shown(file)}" is not what was backed up: its digest is another')
