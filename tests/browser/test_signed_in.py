"""The console on a server that has accounts, and drills; which goes away and comes back, as credentials do."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, expect
from typer.testing import CliRunner

from headrace.cli.commands import app
from tests.browser.conftest import PATIENCE, Picture, check_accessible
from tests.told_process import ROOT, ToldProcess

PASSWORD = "water from the hills"
GOALS = [{"goal": "outage", "limit": 5.0, "seen": 1.25, "met": True}]
DRILL = {"drill": "worker-kill", "says": "a worker <dies>", "seed": 7, "held": True, "goals": GOALS}
LOST = {**DRILL, "drill": "disk-loss", "says": "a disk is lost", "held": False}


class AccountServer:
    """A server in a folder: it may be stopped, and started again at the same address."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: ToldProcess | None = None
        self.url = ""

    def start(self) -> None:
        port = self.url.rpartition(":")[2] or "0"
        command = ["-m", "headrace", "serve", "--port", port, "--data", str(self._folder / "data")]
        self._process = ToldProcess([*command, "--drills", str(self._folder / "drills")], {"NO_COLOR": "1"})
        self.url = self._process.read_until(r"answers at (https?://[^\s/]+)")[1]

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()

    def done(self, sql: str, **who: Any) -> list[list[str]]:
        """The rows of all answers. To check a password costs as much as it has to, so it is asked for once."""
        answer = httpx.post(f"{self.url}/v1/sql", json={"sql": sql}, timeout=60, **who)
        assert answer.status_code == 200, answer.text
        return [row for result in answer.json()["results"] for row in result["rows"]]


@pytest.fixture
def accounts(tmp_path: Path) -> Iterator[AccountServer]:
    """On a server of its own, since from the first account on a server answers nothing without one."""
    command = ["admin", "ann", "--data", str(tmp_path / "data")]
    with ThreadPoolExecutor() as beside:  # Playwright has the event loop of this thread.
        made = beside.submit(CliRunner().invoke, app, command, input=f"{PASSWORD}\n").result()
    assert made.exit_code == 0, made.output
    drills = tmp_path / "drills"
    drills.mkdir()
    for each in (DRILL, LOST):
        (drills / f"{each['drill']}.json").write_text(json.dumps(each))
    (drills / "worker-kill.png").write_bytes((ROOT / "docs" / "img" / "console-sql.png").read_bytes())
    server = AccountServer(tmp_path)
    server.start()
    yield server
    server.stop()


def test_who_has_an_account_signs_in_with_a_key(browser: Browser, accounts: AccountServer, picture: Picture) -> None:
    (_, key, *_), (id, passing, *_), (_, some, *_) = accounts.done(
        "CREATE API KEY 'console' FOR ann; CREATE API KEY 'passing' FOR ann;"
        f"CREATE USER bob IDENTIFIED BY '{PASSWORD}'; GRANT METRICS ON * TO bob; CREATE API KEY 'console' FOR bob",
        auth=("ann", PASSWORD),
    )
    page = browser.new_page()
    page.set_default_timeout(PATIENCE)
    page.goto(f"{accounts.url}/#/views")
    field, send = page.get_by_label("API key"), page.get_by_role("button", name="Sign in")
    field.fill("hrk_wrong")
    send.click()
    expect(page.locator("#signin-error")).not_to_be_empty()
    picture(page, "a wrong key")
    field.fill(passing)
    send.click()
    expect(page.locator(".views table").first).to_be_visible()
    expect(page.get_by_role("dialog")).not_to_be_visible()
    accounts.done(f"DROP API KEY '{id}'", headers={"Authorization": f"Bearer {key}"})
    expect(page.get_by_role("dialog")).to_be_visible()
    expect(page.locator("#signin-error")).not_to_be_empty()
    picture(page, "the key is gone")
    field.fill(key)
    send.click()
    expect(page.get_by_role("dialog")).not_to_be_visible()
    assert page.evaluate("[localStorage.length, document.cookie]") == [0, ""]
    page.goto(f"{accounts.url}/#/operate")
    expect(page.locator("#accounts")).to_contain_text("GRANT ALL")
    expect(page.locator("#sessions tbody tr").filter(has_text="key")).to_contain_text("ann")
    expect(page.locator("#drills")).to_contain_text("a worker <dies>")
    page.locator("#drills summary", has_text="1 did not hold").click()
    expect(page.locator("#drills .errors li")).to_contain_text("disk-loss")
    page.locator("#drills summary", has_text="worker-kill").click()
    expect(page.locator("#drills img")).to_be_visible()
    assert page.locator("#drills img").evaluate("image => image.naturalWidth") > 100
    check_accessible(page)
    page.locator("#accounts").scroll_into_view_if_needed()
    picture(page, "accounts, sessions and drills")

    accounts.stop()
    expect(page.locator("#health")).to_have_text("the server does not answer")
    page.goto(f"{accounts.url}/#/sql")
    expect(page.locator("main .error").first).to_contain_text("does not answer")
    page.evaluate("location.hash = '#/views/None'")
    expect(page.locator("main .error").first).to_contain_text("does not answer")
    picture(page, "the server is away")
    accounts.start()
    expect(page.locator("#health")).to_have_text("serving")
    expect(page.locator("main .error")).to_contain_text("There is no such view")
    page.get_by_role("button", name="Sign out").click()
    field.fill(some)
    send.click()
    page.goto(f"{accounts.url}/#/operate")
    expect(page.locator(".tile").first).to_be_visible()
    expect(page.locator("#migrations .error")).to_contain_text('account "bob" has no PROCESS')
    expect(page.locator("#archive")).to_contain_text("There is none")
    picture(page, "who may see some of it")
    page.context.close()
