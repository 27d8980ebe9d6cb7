"""``headrace admin`` and ``headrace key``: the first administrator, and the keys that applications send."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.queries import Config, Url, connected
from headrace.cli.serving import takes_settings
from headrace.errors import BadRequest, Unavailable
from headrace.settings import Settings, load


@takes_settings
def admin(
    settings: Settings, account: Annotated[str, typer.Argument(metavar="NAME", help="The administrator's name.")]
) -> None:
    """Make an administrator, or let one in again: with a new password, every right, and unlocked.

    Works on the data directory (--data), or for a cluster on its ZooKeeper (--zookeeper), whether the server runs or
    not: it hears of it within a second. Whoever may write there needs no password. From the first account on, the
    server answers nothing without one.

    Examples:

      headrace admin ann

      headrace admin ann --zookeeper 127.0.0.1:2181 < password.txt
    """
    password = _password()
    asyncio.run(_let_in(settings, account, password))
    typer.echo(f'"{account}" is an administrator: headrace key create --for {account} --login {account} makes a key')


def _password() -> str:
    if sys.stdin.isatty():
        return str(typer.prompt("Password", hide_input=True, confirmation_prompt=True, err=True))
    password = sys.stdin.readline().rstrip("\r\n")
    if not password:
        raise BadRequest("no password was given", hint="the first line of standard input is the password")
    return password


async def _let_in(settings: Settings, name: str, password: str) -> None:
    # Late, as with serve.
    from controller.access.accounts import administrator, checked_name
    from controller.access.keeper import Keeper
    from controller.access.passwords import new_id
    from zookeeper.accounts import AccountStore, FileAccounts
    from zookeeper.errors import AuthorityError

    checked_name(name)
    authority = None
    store: AccountStore
    if settings.zookeeper is None:
        _make(settings.data)
        store = FileAccounts(settings.data)
    else:
        from zookeeper.kazoo_authority import authority_of

        try:
            authority = authority_of(settings)
            await authority.start()
        except AuthorityError as error:
            raise Unavailable(error.message, hint=error.hint) from error
        store = authority.accounts()
    keeper = Keeper(store)
    try:
        await keeper.start()
        kept = await keeper.passwords.made(password)
        await keeper.change(name, lambda account: administrator(name, new_id(), kept, account))
    finally:
        await keeper.close()
        if authority is not None:
            await authority.close()


def _make(data: Path) -> None:
    """A server that others reach wants its administrator before its first start."""
    if data.is_dir():
        return
    try:
        data.mkdir(mode=0o700)
    except OSError as error:
        raise BadRequest(
            f'there is no data directory "{data}", and it cannot be made: {error.strerror}',
            hint="--data DIR, or --zookeeper HOSTS",
        ) from error
    typer.echo(f'there was no data directory "{data}": it is made, for a server that is to be started with it')


key = typer.Typer(name="key", help="API keys, which applications and commands send instead of a password.")
Login = Annotated[
    str | None, typer.Option(metavar="NAME", help="Ask with this name and a password, instead of HEADRACE_KEY.")
]


@key.command()
def create(
    account: Annotated[
        str, typer.Option("--for", "--role", metavar="NAME", help="The user or role whose rights the key has.")
    ],
    label: Annotated[str, typer.Option(help="What it is for, shown in lists.")] = "",
    expires: Annotated[str | None, typer.Option(metavar="TIME", help="2027-01-31 08:00:00, in UTC.")] = None,
    login: Login = None,
    url: Url = None,
    config: Config = None,
) -> None:
    """Make a key and print it, this once: only its hash is kept.

    Examples:

      headrace key create --role reader --label website

      HEADRACE_KEY=$(headrace key create --for ann --login ann) headrace status
    """
    ends = "" if expires is None else f" EXPIRE {_quoted(expires)}"
    rows = _run(f"CREATE API KEY {_quoted(label)} FOR {_quoted(account)}{ends}", load(config, url=url), login)
    typer.echo(rows[0]["key"])


@key.command("list")
def list_keys(login: Login = None, url: Url = None, config: Config = None) -> None:
    """List keys: one's own, or for who may manage accounts, all. The keys themselves are not kept.

    Examples:

      headrace key list
    """
    for each in _run("SHOW API KEYS", load(config, url=url), login):
        ends = f", until {each['expires']}" if each["expires"] else ""
        typer.echo(f"{each['id']} of {each['account']}{ends}: {each['label']}")


@key.command()
def drop(
    id: Annotated[str, typer.Argument(help="The key's id, as key list shows it.")],
    login: Login = None,
    url: Url = None,
    config: Config = None,
) -> None:
    """Revoke a key; it is refused within two seconds, by every process of a cluster.

    Examples:

      headrace key drop 5f0c93a1b2d4
    """
    _run(f"DROP API KEY {_quoted(id)}", load(config, url=url), login)
    typer.echo(f"key {id} dropped")


def _run(statement: str, settings: Settings, login: str | None) -> list[dict[str, str]]:
    if login is None:
        with connected(settings) as db:
            return db.execute(statement).records()
    password = typer.prompt("Password", hide_input=True, err=True) if sys.stdin.isatty() else _password()
    with connected(settings, login=(login, password)) as db:
        return db.execute(statement).records()


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"
