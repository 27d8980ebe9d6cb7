"""Django's test runner, which also writes a line of JSON for each test: its name, what became of it, and why."""

import json
import os
import unittest
from typing import Any

from django.test.runner import DiscoverRunner  # type: ignore[import-not-found]


class NotedResult(unittest.TextTestResult):
    def _note(self, test: Any, kind: str, why: str = "") -> None:
        with open(os.environ["NOTES"], "a") as notes:
            notes.write(json.dumps([test.id(), kind, " ".join(why.split())[-300:]]) + "\n")

    def addSuccess(self, test: Any) -> None:
        super().addSuccess(test)
        self._note(test, "passed")

    def addFailure(self, test: Any, err: Any) -> None:
        super().addFailure(test, err)
        self._note(test, "failed", self.failures[-1][1])

    def addError(self, test: Any, err: Any) -> None:
        super().addError(test, err)
        self._note(test, "failed", self.errors[-1][1])

    def addSubTest(self, test: Any, subtest: Any, err: Any) -> None:
        super().addSubTest(test, subtest, err)
        if err is not None:
            self._note(test, "failed", str(err[1]))

    def addSkip(self, test: Any, reason: str) -> None:
        super().addSkip(test, reason)
        self._note(test, "skipped", reason)

    def addExpectedFailure(self, test: Any, err: Any) -> None:
        super().addExpectedFailure(test, err)
        self._note(test, "skipped", "it is expected to fail")

    def addUnexpectedSuccess(self, test: Any) -> None:
        super().addUnexpectedSuccess(test)
        self._note(test, "failed", "it was expected to fail")


class Recorder(DiscoverRunner):  # type: ignore[misc]
    def get_resultclass(self) -> type[NotedResult]:
        return NotedResult
