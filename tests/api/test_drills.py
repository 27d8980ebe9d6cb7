"""What drills have found, as the server shows it."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
from fake_deployment import FakeDeployment

from api.app import create_app

GOAL = {"goal": "outage", "limit": 5.0, "seen": 1.5, "met": True}
RESULT = {"drill": "worker-kill", "says": "a worker dies", "seed": 7, "held": True, "goals": [GOAL], "timeline": [1]}


async def test_drills_are_shown_with_their_pictures(tmp_path: Path) -> None:
    found = tmp_path / "drills"
    found.mkdir()
    (found / "worker-kill.json").write_text(json.dumps(RESULT))
    (found / "worker-kill.png").write_bytes(b"\x89PNG")
    (found / "disk-loss.json").write_text(json.dumps({**RESULT, "drill": "disk-loss"}))
    for name, text in (("half", "{"), ("list", "[1]"), ("other", json.dumps(RESULT)), ("else", '{"drill": "else"}')):
        (found / f"{name}.json").write_text(text)
    (tmp_path / "secret.png").write_bytes(b"secret")
    (tmp_path / "secret.json").write_text(json.dumps({**RESULT, "drill": "secret"}))
    app = create_app(FakeDeployment(), drills=found)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://headrace") as http:
        told = (await http.get("/v1/drills")).json()["drills"]
        assert {each["drill"]: each["picture"] for each in told} == {"worker-kill": True, "disk-loss": False}
        assert told[0]["goals"] == [GOAL]
        shown = await http.get("/v1/drills/worker-kill/picture")
        assert (shown.headers["content-type"], shown.content) == ("image/png", b"\x89PNG")
        for none in ("disk-loss", "other", "..%2Fsecret", "%2e%2e%2fsecret"):
            assert (await http.get(f"/v1/drills/{none}/picture")).status_code == 404, none
    await app.close()
