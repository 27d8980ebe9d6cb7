"""Which release this is, as its distribution says: in OpenAPI and in every status."""

from importlib.metadata import version

VERSION = version("headrace")
