"""Settings that are lists: what each of their items has to look like."""

from __future__ import annotations

import re
from ipaddress import ip_address, ip_network

_HOST = re.compile(r"\*|(\*\.)?[\w-]+(\.[\w-]+)*\.?", re.ASCII)
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(:\d+)?")


def is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def pairs(given: list[str]) -> list[str]:
    """``key=value``. Raises ValueError, as all of these do."""
    for each in given:
        if not all(each.partition("=")):
            raise ValueError(f'write "{each}" like spark.ui.port=4050')
    return given


def networks(given: list[str]) -> list[str]:
    for each in given:
        try:
            ip_network(each)
        except ValueError as error:
            raise ValueError(f"{error}: write an address like 10.0.0.7, or a network like 10.0.0.0/8") from error
    return given


def host_names(given: list[str]) -> list[str]:
    for each in given:
        if not _HOST.fullmatch(each) and not is_address(each):
            raise ValueError(f'write "{each}" like app.example.com or *.example.com, without a port')
    return given


def origins(given: list[str]) -> list[str]:
    for each in given:
        if each != "*" and not _ORIGIN.fullmatch(each):
            raise ValueError(f'write "{each}" like https://app.example.com or http://localhost:3000, as browsers do')
    return given
