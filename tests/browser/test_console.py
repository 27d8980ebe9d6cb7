"""The console in a real browser: what each of its readers does there, and what must never happen."""

from __future__ import annotations

import re
from typing import Literal

import httpx
import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Picture, check_accessible

HOSTILE = "<img src=x onerror=document.title='owned'>"
QUOTED = """it's "quoted" #1 & 50% <b>?"""
HUGE = 200_000
"""Letters of a value."""
PAGES = {
    "#/tour": "main pre, .steps",
    "#/sql": ".catalogue details",
    "#/views": "td a",
    "#/views/Hostile?id=1": ".outcome",
    "#/graph": "svg .box",
    "#/graph/Hostile": "svg .box",
    "#/operate": ".tile",
}
"""Each with what shows that it is whole."""
SCHEMES: dict[Literal["light", "dark"], tuple[str, ...]] = {"light": (), "dark": ("color-contrast",)}
"""What axe looks for: the one scheme differs from the other by its colours."""


def sql(http: httpx.Client, text: str) -> None:
    answer = http.post("/v1/sql", json={"sql": text})
    assert answer.status_code == 200, answer.text


@pytest.fixture(scope="session")
def hostile(server: str) -> str:
    """A table whose name and values would be elements, if they were not shown as text; and a view of it."""
    with httpx.Client(base_url=server, timeout=60) as http:
        sql(http, f"CREATE TABLE `{HOSTILE}` (id INT PRIMARY KEY, note TEXT)")
        sql(http, f"CREATE EXT VIEW Hostile AS SELECT id, note FROM `{HOSTILE}` WHERE id = ?")
        sql(http, f"CREATE EXT VIEW `{QUOTED}` AS SELECT note FROM `{HOSTILE}` WHERE id = ?")
        rows = [{"id": 1, "note": "<script>document.title='owned'</script>"}, {"id": 2, "note": "<b>" * (HUGE // 3)}]
        assert http.post(f"/v1/tables/{HOSTILE}/rows", json={"rows": rows}).status_code == 200
    return HOSTILE


def test_the_tour_of_a_newcomer(page: Page, picture: Picture) -> None:
    page.goto("/")
    page.get_by_role("button", name="Make the tour's tables and views").click()
    said, answer = page.locator("#said"), page.locator(".tour table")
    page.get_by_role("button", name="Read the story").click()
    expect(page.locator(".outcome.miss")).to_be_visible()
    expect(answer.locator("tbody td").last).to_have_text("3")
    picture(page, "a miss")
    page.get_by_role("button", name="Vote for it").click()
    expect(page.locator(".outcome.hit")).to_be_visible()
    expect(answer.locator("tbody tr.changed td").last).to_have_text("4")
    expect(page.locator(".box.lit")).not_to_have_count(0)
    picture(page, "a vote lights up")
    expect(said).to_contain_text("flowed through")
    page.get_by_role("button", name="Evict its answer").click()
    expect(page.locator(".outcome.evicted")).to_contain_text("1 key")
    picture(page, "evicted")
    page.get_by_role("button", name="Read the story").click()
    expect(page.locator(".outcome.miss")).to_be_visible()
    expect(answer.locator("tbody td").last).to_have_text("4")
    page.get_by_role("button", name="Watch it, and vote").click()
    expect(page.locator(".outcome.live")).to_be_visible()
    expect(answer.locator("tbody tr.changed td").last).to_have_text("5")
    picture(page, "watched")
    page.get_by_role("button", name=re.compile("^TourStory")).click()
    expect(page.locator(".facts")).to_contain_text("partial by (id)")


@pytest.mark.refusals
def test_sql_with_an_error_at_its_place(page: Page) -> None:
    page.goto("/console#/sql")
    editor = page.get_by_label("Statements, separated by ;")
    editor.fill("SELECT 1 + 1 AS two;\nSELECT 'a;b' AS text, -- one; statement\n  nope + 1")
    expect(page.locator(".statements .run")).to_have_count(2)
    page.get_by_role("button", name="Run all").click()
    expect(page.locator(".result table").first).to_contain_text("2")
    expect(page.locator(".result .error")).to_contain_text("nope")
    expect(page.locator(".place")).to_have_text("  nope + 1\n  ▲")
    page.get_by_role("button", name="Go there").click()
    assert editor.evaluate("each => each.value.slice(each.selectionStart, each.selectionEnd)") == "nope"


def test_a_select_becomes_a_view_by_the_keyboard(page: Page, http: httpx.Client, picture: Picture) -> None:
    sql(http, "CREATE TABLE weirs (id INT PRIMARY KEY, name TEXT); INSERT INTO weirs VALUES (1, 'north')")
    page.goto("/#/sql")
    editor = page.get_by_label("Statements, separated by ;")
    editor.fill("")
    editor.press_sequentially("SELECT id, name FROM wei")
    expect(page.get_by_role("option", name="weirs")).to_be_visible()
    editor.press("Control+Space")
    editor.press("Enter")
    expect(editor).to_have_value("SELECT id, name FROM weirs")
    editor.press("Control+Enter")
    expect(page.locator(".result table")).to_contain_text("north")
    picture(page, "the rows of the SELECT")
    page.get_by_role("button", name="Explain SELECT").click()
    expect(page.locator(".result svg .box").first).to_be_visible()
    page.get_by_role("button", name="Whole picture").press("Enter")
    assert page.locator(".result svg").evaluate("svg => svg.clientWidth <= svg.parentElement.clientWidth")
    editor.press("Control+Enter")
    page.get_by_text("Make it a view").click()
    page.get_by_label("Name of the view").fill("Weirs of the river")
    page.get_by_role("button", name="Make", exact=True).click()
    page.get_by_role("link", name="Weirs of the river").first.click()
    page.get_by_role("button", name="Read").click()
    expect(page.locator(".views table")).to_contain_text("north")
    page.get_by_role("button", name="Why is row 1 here?").click()
    expect(page.locator(".lineage")).to_contain_text("comes from 1 base row")
    picture(page, "why is it here")
    page.get_by_label("A statement that writes").fill("INSERT INTO weirs VALUES (2, 'south')")
    page.get_by_role("button", name="Write").click()
    expect(page.locator("tr.changed")).to_contain_text("south")


def test_an_answer_changes_before_ones_eyes(page: Page, http: httpx.Client) -> None:
    sql(http, "CREATE TABLE gauges (id INT PRIMARY KEY, level INT); INSERT INTO gauges VALUES (7, 1)")
    sql(http, "CREATE EXT VIEW Level AS SELECT id, level FROM gauges WHERE id = ?")
    with page.expect_request("**/v1/live"):
        page.goto("/#/views/Level?id=7")
    expect(page.locator(".views table")).to_contain_text("1")
    sql(http, "UPDATE gauges SET level = 22 WHERE id = 7")
    expect(page.locator("tr.changed")).to_contain_text("22")
    expect(page.locator(".views .hint").filter(has_text="watched")).to_have_text("watched: live")


def test_a_migration_is_cancelled(page: Page, http: httpx.Client, picture: Picture) -> None:
    sql(http, "CREATE TABLE mills (id INT PRIMARY KEY, k INT)")
    rows = [{"id": each, "k": 1} for each in range(3000)]
    assert http.post("/v1/tables/mills/rows", json={"rows": rows}).status_code == 200
    page.goto("/#/operate")
    expect(page.locator("#overview")).to_contain_text("memory")
    pairs = "CREATE EXT VIEW Pairs AS SELECT a.id, b.id AS other FROM mills a JOIN mills b ON a.k = b.k ORDER BY a.id"
    assert http.post("/v1/migrations", json={"sql": pairs}).status_code == 202
    expect(page.get_by_role("button", name="Cancel migration")).to_be_visible()
    picture(page, "it runs")
    cancel = page.get_by_role("button", name="Cancel migration")
    cancel.focus()
    for _ in range(2):  # The list is made anew, and keeps the focus.
        with page.expect_response("**/v1/migrations"):
            pass
    expect(cancel).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#migrations")).to_contain_text("cancelled")
    assert http.get("/v1/views/Pairs").status_code == 404
    double = "ALTER TABLE mills ADD UNIQUE (k)"
    assert http.post("/v1/migrations", json={"sql": double}).status_code == 202
    page.locator("#migrations summary", has_text="1 failed").click()
    expect(page.locator("#migrations .errors li")).to_contain_text("k")
    page.reload()
    expect(page.locator("#migrations")).to_contain_text("1 failed")


def test_hostile_names_and_values_are_text(page: Page, hostile: str) -> None:
    for path, whole in PAGES.items():
        page.goto(f"/{path}")
        expect(page.locator(whole).first).to_be_visible()
        page.reload()
        expect(page.locator(whole).first).to_be_visible()
    page.goto("/#/views/Hostile?id=1")
    expect(page.locator(".views table")).to_contain_text("<script>")
    page.goto(f"/#/views/{hostile}")
    expect(page.locator("h1")).to_have_text(hostile)
    page.goto("/#/sql")
    expect(page.locator(".catalogue")).to_contain_text(hostile)
    page.goto("/#/graph")
    expect(page.locator(".box.base title", has_text=hostile)).to_have_count(1)
    page.goto("/#/views")
    page.get_by_role("link", name=QUOTED).click()
    page.get_by_label("id =").fill("2")
    page.get_by_role("button", name="Read").click()
    shown = page.locator(".views td details")
    expect(shown.locator("summary")).to_contain_text("<b><b>")
    assert len(shown.inner_text()) < 1_000, "it is closed"
    shown.locator("summary").click()
    expect(shown).to_contain_text("letters)")
    page.goto("/#/graph")
    expect(page.locator(".box title", has_text=QUOTED)).to_have_count(1)
    page.reload()
    expect(page.locator(".box title", has_text=QUOTED)).to_have_count(1)
    assert page.locator("main img, main script, main b").count() == 0
    assert "owned" not in page.title()


def test_a_key_is_read_and_left_by_the_keyboard(page: Page, hostile: str) -> None:
    page.goto("/#/views")
    expect(page.locator(PAGES["#/views"]).first).to_be_visible()
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="To the content")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#main")).to_be_focused()
    page.keyboard.press("Tab")
    page.keyboard.type("hostile")
    expect(page).to_have_url(re.compile("#/views\\?filter=hostile$"))
    page.get_by_role("link", name="Hostile", exact=True).focus()
    page.keyboard.press("Enter")
    page.get_by_label("id =").focus()
    page.keyboard.type("1")
    page.keyboard.press("Enter")
    expect(page.locator(".outcome")).to_be_visible()
    page.go_back()
    page.go_back()
    expect(page.get_by_label("Find")).to_have_value("hostile")


def test_everybody_can_use_it(page: Page, hostile: str, picture: Picture) -> None:
    for path, whole in PAGES.items():
        page.goto(f"/{path}")
        expect(page.locator(whole).first).to_be_visible()
        if path == "#/sql":
            page.get_by_label("Statements, separated by ;").fill("EXPLAIN Hostile; SELECT 1")
            page.get_by_role("button", name="Run all").click()
            expect(page.locator(".result table")).to_be_visible()
        for scheme, rules in SCHEMES.items():
            page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
            picture(page, f"{path.removeprefix('#/').split('?')[0].replace('/', ' ')} {scheme}")
            check_accessible(page, rules)


def test_on_a_phone_nothing_is_wider_than_it(page: Page, hostile: str, picture: Picture) -> None:
    page.set_viewport_size({"width": 360, "height": 740})
    for path, whole in PAGES.items():
        page.goto(f"/{path}")
        expect(page.locator(whole).first).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, path
        picture(page, path.removeprefix("#/").split("?")[0].replace("/", " "))


@pytest.mark.refusals
def test_the_policy_lets_no_other_script_run(page: Page, http: httpx.Client) -> None:
    policy = http.get("/", headers={"accept": "text/html"}).headers["content-security-policy"]
    assert "'unsafe" not in policy
    assert "default-src 'none'" in policy
    page.goto("/")
    expect(page.locator("h1")).to_be_visible()
    ran = page.evaluate(
        """() => {
          const made = document.createElement("div");
          made.innerHTML = '<a onclick="window.ran = 1">x</a>';
          document.body.append(made);
          made.firstChild.click();
          return window.ran ?? "refused";
        }"""
    )
    assert ran == "refused"
