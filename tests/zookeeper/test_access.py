"""Whom znodes are for: who has the deployment's secret, also where they were open before, and while it is replaced."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from authority_kinds import DEADLINE, Kind

from zookeeper import secret as secrets
from zookeeper.accounts import AccountDocument
from zookeeper.authority import ClusterAuthority
from zookeeper.errors import AccessRefused, AuthorityError
from zookeeper.registration import ControllerDescriptor, WorkerDescriptor
from zookeeper.secret import Secret, bearers
from zookeeper.session import NoNode

ONE, TWO = "1" * 64, "2" * 64
WORKER = WorkerDescriptor("w1", "h", 1, 1, 1, "d")
ANN: AccountDocument = {"name": "ann"}
PATHS = ("", "/state", "/workers", "/workers/w1", "/accounts", "/controller", "/candidates", "/apis")


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch, kind: Kind) -> None:
    """Sessions outlast a machine that stands still: what is theirs alone would be gone, and not refused."""
    monkeypatch.setattr(secrets, "LOOK_SECONDS", 0.02)
    kind.be_patient()


async def filled(authority: ClusterAuthority) -> None:
    """A deployment with one of everything."""
    await authority.start(create=True)
    await authority.write(b"state", 0)
    await authority.register_worker(WORKER)
    await authority.candidate(ControllerDescriptor("c1", "h", 1, 1)).elected()
    accounts = authority.accounts()
    await accounts.start(lambda changed: None)
    await accounts.change("ann", lambda before: ANN)
    await accounts.close()


async def refused(authority: ClusterAuthority) -> bool:
    """Whether everything of it is refused to whoever has this session."""
    session: Any = authority._session
    for path in PATHS:
        for act in (
            lambda at: session.get(at),
            lambda at: session.children(at),
            lambda at: session.set(at, b"mine", -1),
            lambda at: session.create(f"{at}/mine", b""),
            lambda at: session.protect(at),
        ):
            try:
                await act(f"/headrace/main{path}")
            except AccessRefused:
                continue
            except NoNode:
                return False
            return False
    for path in ("/state", "/workers/w1", "/controller"):
        with pytest.raises(AccessRefused):
            await session.delete(f"/headrace/main{path}")
    return True


async def stranger(kind: Kind, secret: Secret | None) -> ClusterAuthority:
    """A session of somebody who reaches ZooKeeper, and bears a secret."""
    authority = kind.authority("main")
    authority._session.allow(bearers(secret) if secret is not None else [])
    await authority._session.start()
    return authority


@pytest.mark.parametrize("texts", [(), (TWO,)], ids=["none", "another"])
async def test_who_has_not_the_secret_is_kept_out(kind: Kind, texts: tuple[str, ...]) -> None:
    theirs = Secret(None, texts) if texts else None
    await filled(kind.authority("main", Secret(None, (ONE,))))
    authority = kind.authority("main", theirs)
    for create in (False, True):
        with pytest.raises(AccessRefused, match='refuses access to "/headrace') as caught:
            await authority.start(create=create)
        authority = kind.authority("main", theirs)
    assert "secret" in str(caught.value.hint)
    nobody = await stranger(kind, theirs)
    assert await refused(nobody)
    session: Any = nobody._session
    for act in (session.get, session.children, lambda at: session.create(f"{at}/other", b""), session.protect):
        with pytest.raises(AccessRefused):
            await act("/headrace")


async def test_znodes_that_were_open_are_protected_at_the_next_start(kind: Kind) -> None:
    before = kind.authority("main")
    await filled(before)
    nobody = await stranger(kind, None)
    assert not await refused(nobody)
    await before.close()
    now = kind.authority("main", Secret(None, (ONE,)))
    await now.start(create=True)
    assert await now.read() == (b"state", 1)
    await now.register_worker(WORKER)
    await now.candidate(ControllerDescriptor("c1", "h", 1, 1)).elected()
    known: dict[str, AccountDocument | None] = {}
    accounts = now.accounts()
    await accounts.start(known.update)
    assert known == {"ann": ANN}
    assert await refused(nobody)
    await accounts.close()


async def test_the_secret_is_replaced_without_a_stop(kind: Kind) -> None:
    leads, works = Secret(None, (ONE,)), Secret(None, (ONE,))
    controller, worker = kind.authority("main", leads), kind.authority("main", works)
    await controller.start(create=True)
    version = await controller.write(b"state", 0)
    await worker.start()
    await worker.register_worker(WORKER)
    only_old = await stranger(kind, Secret(None, (ONE,)))
    for texts in ((ONE, TWO), (TWO, ONE), (TWO,)):
        leads._texts = texts
        version = await controller.write(b"state", version)
        await asyncio.sleep(0.1)
        assert await worker.read() == (b"state", version), "it has not heard of the next step yet"
        works._texts = texts
        await asyncio.sleep(0.1)
        assert set(await worker.workers()) == {"w1"}
        assert await worker.read() == (b"state", version)
    async with asyncio.timeout(DEADLINE):
        while True:
            try:
                await only_old._session.get("/headrace/main/state")
            except AccessRefused:
                break
            await asyncio.sleep(0.05)
    later = kind.authority("main", Secret(None, (TWO,)))
    await later.start()
    assert await later.read() == (b"state", version)
    with pytest.raises(AuthorityError):
        await kind.authority("main", Secret(None, (ONE,))).start()


async def test_what_a_process_makes_with_the_old_secret_is_protected_later(
    kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(secrets, "PROTECT_SECONDS", 0.1)
    leads, works = Secret(None, (ONE, TWO)), Secret(None, (ONE, TWO))
    controller, worker = kind.authority("main", leads), kind.authority("main", works)
    await controller.start(create=True)
    await worker.start()
    old = await stranger(kind, Secret(None, (ONE,)))
    leads._texts = (TWO,)
    await asyncio.sleep(0.1)
    await worker.register_worker(WORKER)
    async with asyncio.timeout(DEADLINE):
        while True:
            try:
                await old._session.get("/headrace/main/workers/w1")
            except AccessRefused:
                break
            await asyncio.sleep(0.05)
    assert set(await worker.workers()) == {"w1"}


async def test_deployments_that_are_open_live_beside_one_that_gets_a_secret(kind: Kind) -> None:
    beside = kind.authority("beside")
    await beside.start(create=True)
    await filled(kind.authority("main", Secret(None, (ONE,))))
    await beside.write(b"theirs", 0)
    await kind.authority("third").start(create=True)
    nobody = await stranger(kind, None)
    assert await refused(nobody)
    assert (await nobody._session.get("/headrace/beside/state")).data == b"theirs"
