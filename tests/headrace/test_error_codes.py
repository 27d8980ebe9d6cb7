"""Every error that a process may report to another comes back with its own code and its own status.

What the other process has imported must not matter: a table says it, and this test holds the table to the classes.
"""

import importlib
import pkgutil
from collections.abc import Iterator

import pytest
from headrace_client import calls
from headrace_client.calls import read_answer

from api.statuses import status_of
from domains.errors import HeadraceError, Unavailable
from headrace import errors

ROOMS = ("api", "controller", "domains", "migrations", "worker")


def _import_all() -> None:
    for room in ROOMS:
        package = importlib.import_module(room)
        for module in pkgutil.walk_packages(package.__path__, f"{room}."):
            if not module.name.endswith("__main__"):
                importlib.import_module(module.name)


def _below(kind: type[HeadraceError]) -> Iterator[type[HeadraceError]]:
    yield kind
    for each in kind.__subclasses__():
        yield from _below(each)


def test_every_code_comes_back_with_its_status() -> None:
    _import_all()
    rooms = (*ROOMS, "headrace_client")
    kinds = [kind for kind in _below(HeadraceError) if kind.__module__.partition(".")[0] in rooms]
    assert {"bulk_failed", "spark_failed", "stale_epoch", "archive_gap"} <= {kind.code for kind in kinds}
    for kind in kinds:
        again = errors.rebuild(kind.code, "broke", "mend it")
        assert (again.code, again.message, again.hint) == (kind.code, "broke", "mend it")
        assert status_of(again) == status_of(kind("broke")), kind


def test_a_code_is_its_own_class_whoever_else_has_inherited_it() -> None:
    _import_all()
    assert type(errors.rebuild("unavailable", "x")) is Unavailable


@pytest.mark.parametrize(("status", "kind"), [(503, Unavailable), (500, errors.ServerFault), (404, errors.NotFound)])
def test_a_code_of_a_later_version_is_known_by_its_status(status: int, kind: type[HeadraceError]) -> None:
    body = b'{"error": {"code": "of_later", "message": "m", "hint": null}}'
    with pytest.raises(kind) as caught:
        read_answer(calls.execute("SELECT 1", ()), status, body)
    assert caught.value.code == "of_later"
