"""Who asks, and what they may: accounts, how they prove who they are, and the statements about them.

::

    Authorization ──► Authentication ──► Caller ──► endpoint, route, statement: check, then do
                            │  ▲
       password: argon2, off the loop; key: SHA-256      Keeper ◄── watch ── AccountStore: a file, or znodes
       token: its issuer's signature, off the loop        │ ▲
                            └──── accounts, rights ◄──────┘ ▲
                                       performing.py: GRANT, CREATE USER, … ─┘

What they do is recorded where there is an audit log (``audit_log.py``).

A deployment without accounts is open: every session may do everything (``headrace serve`` on a fresh directory). The
first account is an administrator, made by ``headrace admin``; from then on nothing is answered without a right.

A :class:`~controller.access.session.Caller` is the value that a request carries: who, with which rights, until when.
It is made anew with each change of an account, so a right that is revoked is gone with the next request on a
connection that stays open.
"""
