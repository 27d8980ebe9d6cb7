"""The embedded deployment under test: two threads, RocksDB, LMDB, memory pressure through the limit, real restarts.

A restart is by turns a clean one and a crash: the data directory is copied as it lies there while the deployment is
open (which is what ``kill -9`` leaves) and the copy is opened.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Coroutine, Sequence
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

from api.encoding import parse
from controller.embedded.local import LocalDeployment
from domains.engine.invariants import check_links
from domains.language.types import Kind
from domains.operators.edges import ReaderOperator
from tests.campaign.functions import json_text
from tests.campaign.kinds import NOW
from tests.campaign.subject import Answer, Setting

PLENTY = 2**40
READ_TIMEOUT = 60.0
SHARES = (0.0, 0.3, 0.6, 0.9)
"""What memory pressure leaves. Nothing is the hardest: each entry goes as soon as it was read."""

Result = TypeVar("Result")


class Real:
    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.random = Random(f"real {setting.seed}")
        self._directory = TemporaryDirectory(prefix="headrace-campaign-")
        self._generation = 0
        self._loop = asyncio.new_event_loop()
        self.deployment = self._open()

    @property
    def path(self) -> Path:
        return Path(self._directory.name) / str(self._generation)

    def _open(self) -> LocalDeployment:
        opened = self._run(
            LocalDeployment.open(
                self.path,
                memory_limit=PLENTY,
                domains=self.setting.domains,
                shards=self.setting.shards,
                read_timeout=READ_TIMEOUT,
                partial=self.setting.partial,
            )
        )
        opened.now = lambda: NOW  # type: ignore[method-assign]
        return opened

    def _run(self, work: Coroutine[Any, Any, Result]) -> Result:
        return self._loop.run_until_complete(work)

    # --- statements and reads -------------------------------------------------------------------------------------

    def execute(self, sql: str) -> list[Answer]:
        results, _ = self._run(self.deployment.execute(sql))
        return [
            Answer(tuple(column.name for column in each.columns), each.rows, each.rows_affected) for each in results
        ]

    def lookup(self, view: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        arguments = self._arguments(view, values)
        page = self._run(self.deployment.read(view, lambda binding: binding.from_arguments(arguments)))
        columns = self.deployment.state.planned[view.lower()].columns
        documents = [column.type.kind is Kind.JSON for column in columns]
        return [
            tuple(
                value if value is None or not is_document else json_text(value)
                for value, is_document in zip(row.values(), documents, strict=True)
            )
            for row in parse(b"[" + page + b"]")
        ]

    def select_evaluated(self, sql: str) -> list[tuple[Any, ...]] | None:
        return None

    def view_evaluated(self, view: str, values: Sequence[Any]) -> list[tuple[Any, ...]] | None:
        return None

    def evict(self, view: str, values: Sequence[Any]) -> None:
        if self.deployment.prepare(view).binding.reader.key:
            self._run(self.deployment.evict(view, [self._arguments(view, values)]))

    def _arguments(self, view: str, values: Sequence[Any]) -> list[Any]:
        """One argument a parameter, from one value a ``?``."""
        self.deployment.prepare(view)
        planned = self.deployment.state.planned[view.lower()]
        given: list[Any] = [None] * len(planned.parameters)
        for index, value in zip(planned.placeholders, values, strict=True):
            given[index] = value
        return given

    # --- disturbances ---------------------------------------------------------------------------------------------

    def evict_some(self, random: Random) -> None:
        """Lower the limit for one batch, or for all that follows until the pressure changes again."""
        dataflow = self.deployment.dataflow
        held = sum(self._ask(lambda: [domain.accounted_bytes() for domain in dataflow.domains.values()]))
        dataflow.memory_limit = int(held * random.choice(SHARES))
        self._ask(lambda: None)
        if random.random() < 0.5:
            dataflow.memory_limit = PLENTY

    def restart(self) -> None:
        if self.random.random() < 0.5:
            self._run(self.deployment.close())
        else:
            before = self.path
            self._generation += 1
            shutil.copytree(before, self.path)
            self._run(self.deployment.close())
            shutil.rmtree(before)
        self.deployment = self._open()

    def settle(self) -> None:
        """An answered write is visible already; what is left is to let whatever was handed over be flushed, and an
        automatic view that is being made be there."""
        self._run(self.deployment.selects.settled())
        self._ask(lambda: None)

    def step(self, random: Random) -> None:
        """Links inside a process are drained with every batch."""

    def check(self) -> None:
        """The links, between two steps; then that the readers' keys are those of the reader map."""
        self._run(self.deployment.selects.settled())
        dataflow = self.deployment.dataflow
        filled = self._ask(self._filled)
        client = dataflow.client()
        for index, keys in filled.items():
            holes = client.holes(dataflow.layouts[index], keys)
            assert not holes, f"reader {index}: {holes} are filled in the domain and holes in the reader map"

    def _filled(self) -> dict[Any, list[Any]]:
        domains = self.deployment.dataflow.domains.values()
        check_links(domains)
        return {
            (domain.index, vertex.index): list(vertex.operator.filled.keys())
            for domain in domains
            for vertex in domain.vertices.values()
            if isinstance(vertex.operator, ReaderOperator)
        }

    def _ask(self, question: Any) -> Any:
        return self.deployment.dataflow.call(question).result(READ_TIMEOUT)

    def close(self) -> None:
        self._run(self.deployment.close())
        self._loop.close()
        self._directory.cleanup()


def real(setting: Setting) -> Real:
    return Real(setting)
