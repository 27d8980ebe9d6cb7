"""The secret of a deployment: a file that all of its processes have, and the keys that are derived from it.

::

    secret (mode 0600)      a line: 64 random digits     ─ HKDF ─┬─► links, a key for each role   worker/wire/proof.py
                            perhaps another line                 └─► ZooKeeper's password         kazoo_authority.py

Of two lines the first is what this process proves, and both are taken from others. So a secret is replaced without a
stop, in three steps that each reach all machines before the next: the new one as the second line, the new one as the
first, the new one alone. The file is read again when it changes. What cannot be read then changes nothing.

A key is one-way: ZooKeeper hears its password in clear, and who overhears it has nothing for the links.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import os
import secrets
import stat
import time
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from hashlib import sha256
from pathlib import Path

from zookeeper.errors import AccessRefused, AuthorityError, SecretUnusable
from zookeeper.session import NoNode, Session

FILE = "secret"
"""In the data directory of ``headrace up``."""
LENGTH_LEAST = 32
"""Characters of a secret. It is not stretched, so it has to be random: ``headrace up`` takes 256 bits, 64 digits."""
FILE_BYTES_MAX = 4096
LOOK_SECONDS = 1.0
"""Between two looks whether the file is another one."""
PROTECT_SECONDS = 30.0
"""Between two looks at the access lists of all znodes, which are some fifty."""
OTHERS = stat.S_IRWXG | stat.S_IRWXO

_log = logging.getLogger("headrace.secret")


class Secret:
    """The secret in a file; or ``texts``, for processes that are handed it."""

    def __init__(
        self, path: Path | None, texts: tuple[str, ...] = (), clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Raises SecretUnusable."""
        self.path = path
        self._clock = clock
        self._texts = texts
        self._seen: tuple[int, int, int, int] | None = None
        self._looked = clock()
        self._told = ""
        if path is not None:
            self._texts, self._seen = _read(path)

    @property
    def texts(self) -> tuple[str, ...]:
        """The one that is proven, and perhaps another one that is taken."""
        if self.path is not None and self._clock() - self._looked >= LOOK_SECONDS:
            self._looked = self._clock()
            self._look(self.path)
        return self._texts

    def keys(self, purpose: str) -> tuple[bytes, ...]:
        """A key of 32 bytes for each of ``texts``."""
        return tuple([derived(text, purpose) for text in self.texts])

    def _look(self, path: Path) -> None:
        try:
            if _identity(path.stat()) == self._seen:
                return
            texts, self._seen = _read(path)
        except (SecretUnusable, OSError) as error:  # Those that are known go on: nobody is let in by a slip of the pen.
            if str(error) != self._told:
                _log.error("the secret stays as it was: %s", error)
            self._told = str(error)
            return
        self._told = ""
        if texts != self._texts:
            self._texts = texts
            _log.info('the secret in "%s" is another one: %d', path, len(texts))

    def __repr__(self) -> str:
        return f"Secret({str(self.path)!r})"  # Never the texts.


def secret_of(file: Path | None, data: Path) -> Secret | None:
    """That in the file, or else in the data directory, if there is one there. Raises SecretUnusable."""
    beside = data / FILE
    file = file or (beside if beside.exists() else None)
    return None if file is None else Secret(file)


@lru_cache(maxsize=64)
def derived(text: str, purpose: str) -> bytes:
    """HKDF-SHA256 (RFC 5869) of 32 bytes, with the purpose as its info."""
    extracted = hmac.digest(b"headrace", text.encode(), sha256)
    return hmac.digest(extracted, purpose.encode() + b"\x01", sha256)


def make_secret(path: Path) -> bool:
    """Make a file with a new secret where there is none; whether there was none. Raises SecretUnusable."""
    beside = path.with_name(f"{path.name}.new{os.getpid()}")
    try:
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(descriptor, "w") as file:
                file.write(secrets.token_hex(32) + "\n")
                file.flush()
                os.fsync(file.fileno())
            os.link(beside, path)  # Unlike a rename it does not replace what another process made meanwhile.
        finally:
            beside.unlink()
    except FileExistsError:
        return False
    except OSError as error:
        raise SecretUnusable(f'cannot make the secret "{path}": {error.strerror or error}') from error
    return True


def _identity(found: os.stat_result) -> tuple[int, int, int, int]:
    return found.st_ino, found.st_mtime_ns, found.st_size, found.st_mode


def _read(path: Path) -> tuple[tuple[str, ...], tuple[int, int, int, int]]:
    """The secrets, and what tells the file from another one."""
    try:
        with path.open("rb") as file:
            found = os.fstat(file.fileno())
            data = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise SecretUnusable(
            f'cannot read the secret "{path}": {error.strerror or error}',
            hint="every machine of a deployment has the same file: docs/security.md",
        ) from error
    if not stat.S_ISREG(found.st_mode):
        raise SecretUnusable(f'the secret "{path}" is no file')
    if found.st_mode & OTHERS:
        raise SecretUnusable(
            f'the secret "{path}" has mode {stat.S_IMODE(found.st_mode):04o}: others may read it',
            hint=f"chmod 600 {path}, and replace it if somebody has",
        )
    try:
        texts = tuple(line.strip() for line in data.decode("ascii").splitlines() if line.strip())
    except UnicodeDecodeError:
        texts = ()
    if not 1 <= len(texts) <= 2 or len(data) > FILE_BYTES_MAX or min(map(len, texts)) < LENGTH_LEAST:
        raise SecretUnusable(
            f'the secret "{path}" is no line, or two, of at least {LENGTH_LEAST} letters and digits',
            hint="openssl rand -hex 32 makes one",
        )
    return texts, _identity(found)


def bearers(secret: Secret) -> list[str]:
    """``name:password`` of each."""
    return [f"headrace:{key.hex()}" for key in secret.keys("zookeeper")]


class ZnodeGuard:
    """Has a deployment's znodes be for who has its secret."""

    def __init__(self, secret: Secret, session: Session, root: str, deployment: str) -> None:
        """The session, which has not started, bears the secret from here on."""
        self._secret = secret
        self._session = session
        self._root = root
        self._deployment = deployment
        self._bearers = self._present()
        session.allow(self._bearers)

    def _present(self) -> list[str]:
        """ZooKeeper's passwords. Its digest scheme sends them in clear, and nothing else can be derived of them."""
        return bearers(self._secret)

    async def protect(self) -> None:
        """All znodes: those that were open before there was a secret, or were made with an earlier one too. Raises
        AuthorityError."""
        with suppress(AccessRefused):  # It is another one's.
            if self._session.is_private and {*await self._session.children("/")} <= {self._root[1:], "zookeeper"}:
                await self._session.protect("/")  # Nobody else may fill it.
        with suppress(AccessRefused):  # It is another deployment's.
            if await self._session.children(self._root) == [self._deployment]:
                await self._session.protect(self._root)  # Else others, who have no secret, have to get in.
        await self._protect(f"{self._root}/{self._deployment}")

    async def _protect(self, path: str) -> None:
        """With all that is in it."""
        with suppress(NoNode):  # It has gone meanwhile.
            await self._session.protect(path)
            names = await self._session.children(path)
            await asyncio.gather(*(self._protect(f"{path}/{name}") for name in names))

    async def follow(self, *, protects: bool) -> None:
        """Bear the secret when it is another one. Who ``protects`` also looks now and then for what others, who heard
        of it later, have made since."""
        loop = asyncio.get_running_loop()
        protected = loop.time()
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            present = self._present()
            changed = present != self._bearers
            if changed:
                self._session.allow(present)
            try:
                if protects and (changed or loop.time() - protected >= PROTECT_SECONDS):
                    await self.protect()
                    protected = loop.time()
                self._bearers = present
            except AuthorityError as error:
                _log.warning("the znodes of %s are not protected anew: %s", self._deployment, error)
