"""Who may do what here, and who is here: the accounts with their rights, and those whose credentials are known."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Response

from api.dependencies import Knowing, Serving, answer, needs
from api.schemas import AccountsAnswer, SessionsAnswer
from controller.access.accounts import Account, Accounts, time_text
from controller.access.performing import grants_of
from migrations.access.rights import Privilege

router = APIRouter(tags=["accounts"])


@router.get("/v1/accounts", response_model=AccountsAnswer, dependencies=needs(Privilege.CREATE_USER))
async def accounts(deployment: Serving) -> Response:
    """All accounts and roles with what they may. Nothing that lets somebody in is told."""
    known = Accounts({}) if deployment.accounts is None else deployment.accounts.accounts
    return answer({"accounts": [_shown(each, known) for each in sorted(known, key=lambda one: one.name)]})


@router.get("/v1/sessions", response_model=SessionsAnswer, dependencies=needs(Privilege.PROCESS))
async def sessions(deployment: Serving, authentication: Knowing) -> Response:
    """The accounts whose credentials this process has verified and remembers, and what they watch."""
    live: dict[str, int] = {}
    for (_, account), number in deployment.live.readers().items():
        live[account] = live.get(account, 0) + number
    told = [
        {
            "account": each.account,
            "way": each.way,
            "credentials": each.credentials,
            "expires": time_text(each.expires),
            "last_read": time_text(each.read),
            "live": live.get(each.account, 0),
        }
        for each in authentication.present()
    ]
    return answer({"sessions": sorted(told, key=lambda one: (one["account"], one["way"]))})


def _shown(account: Account, known: Accounts) -> dict[str, Any]:
    ways = {"password": bool(account.password or account.verifiers), "certificate": bool(account.certificate)}
    return {
        "account": account.name,
        "role": account.is_role,
        "ways": [way for way, there in ways.items() if there],
        "keys": [{"id": key.id, "label": key.label, "expires": key.expires or None} for key in account.keys],
        "locked": account.locked,
        "expires": account.expires or None,
        "grants": grants_of(account, known),
    }
