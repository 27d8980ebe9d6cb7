"""Which extra of the distribution a package that is not installed comes with."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from headrace.errors import Unavailable

EXTRAS = {
    "kazoo": "cluster",
    "pyspark": "spark",
    "pyarrow": "spark",
    "matplotlib": "bench",
    "numpy": "bench",
    "hdrh": "bench",
    "duckdb": "bench",
    "asyncmy": "peers",
    "asyncpg": "peers",
    "redis": "peers",
}


@contextmanager
def named() -> Iterator[None]:
    """Raises Unavailable where a package of an extra is missing, with the extra to install."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        extra = EXTRAS.get(package)
        if extra is None:
            raise
        message = f'this needs "{package}", which is not installed'
        raise Unavailable(message, hint=f"pip install 'headrace[{extra}]'") from error
