"""TLS of the public port: the files that settings name, read at the start and again on SIGHUP.

A new certificate is for new connections; those that are open go on with the one that they know. A file that cannot be
taken changes nothing: the log says what is wrong with it, and the earlier one goes on.
"""

from __future__ import annotations

import logging
import os
import ssl
import stat
from pathlib import Path

from headrace.serving.listening import StartFailed
from headrace.settings import Settings

_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_OTHERS_OF_ROOTS = stat.S_IRWXO | stat.S_IWGRP | stat.S_IXGRP
"""A key of root's may be read by its group, which is how a service that is not root gets it."""

_log = logging.getLogger("headrace.tls")


def context_of(settings: Settings) -> ssl.SSLContext | None:
    """What TLS connections are made by; None: HTTP is plain.

    :raises StartFailed: a file is not there, is not what it should be, or others may read the key.
    """
    if settings.tls_cert is not None:
        return _context(settings, settings.tls_cert)
    for name in ("tls_key", "tls_client_ca"):
        if getattr(settings, name) is not None:
            raise StartFailed(f'there is "{name}" and no "tls_cert"', hint="--tls-cert FILE --tls-key FILE")
    return None


def read_again(settings: Settings, before: ssl.SSLContext) -> ssl.SSLContext:
    """What the files have now, for new connections."""
    try:
        found = context_of(settings)
    except StartFailed as error:
        _log.error("the TLS files are not taken, and what was read before stays: %s", error)
        return before
    _log.info('read "%s" again', settings.tls_cert)
    return found or before


def _context(settings: Settings, certificate: Path) -> ssl.SSLContext:
    key = settings.tls_key or certificate
    _check_private(key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # A client could have the server sign again and again on one connection.
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION | ssl.OP_CIPHER_SERVER_PREFERENCE
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(certificate, settings.tls_key, password=_no_passphrase)
    except OSError as error:
        raise StartFailed(
            f'cannot take the certificate "{certificate}" with the key "{key}": {_reason(error)}',
            hint="both are PEM: the certificate with its chain, and its key without a passphrase",
        ) from error
    if settings.tls_client_ca is not None:
        context.verify_mode = ssl.CERT_OPTIONAL  # Who has none may have a key or a password.
        try:
            context.load_verify_locations(settings.tls_client_ca)
        except OSError as error:
            raise StartFailed(
                f'cannot take the certificates of clients\' CAs "{settings.tls_client_ca}": {_reason(error)}',
                hint="they are PEM, one behind the other",
            ) from error
    return context


def _no_passphrase() -> str:
    """OpenSSL would ask on the terminal."""
    return ""


def _reason(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        return (error.reason or "it is not PEM").lower().replace("_", " ")
    return error.strerror or str(error)


def _check_private(path: Path) -> None:
    """As PostgreSQL has it: a key is for its owner alone, or root's and its group may read it."""
    try:
        found = path.stat()
    except OSError as error:
        raise StartFailed(f'cannot read the key "{path}": {error.strerror}') from error
    if found.st_uid not in (0, os.geteuid()):
        raise StartFailed(f'the key "{path}" belongs to another user', hint=f"chown {os.geteuid()} {path}, or root")
    others = _OTHERS if found.st_uid else _OTHERS_OF_ROOTS
    if found.st_mode & others:
        raise StartFailed(
            f'other users can read or change the key "{path}" (mode {stat.S_IMODE(found.st_mode):04o})',
            hint=f"chmod {'600' if found.st_uid else '640'} {path}",
        )
