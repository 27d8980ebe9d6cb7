"""MySQL's protocol in front of a deployment: an application that has a driver for MySQL needs no other.

::

    socket ──► connection.py: greeting ──► proving.py: who it is ──► one command after the other
                   │ packets.py: bytes ◄─► packets                     │
                   │                                                   ▼
                   │                      commands.py: COM_QUERY, COM_STMT_EXECUTE, COM_PING, …
                   │                                                   │ text, values
                   │                                                   ▼
                   │                      session.py ─► Deployment.try_select: a view has it, at once
                   │                          └───────► Deployment.execute ── the same as POST /v1/sql
                   │                                                   │ rows, columns
                   └──◄── values.py: text rows, binary rows ◄──────────┘        errors.py: numbers and SQLSTATEs

Nothing of what SQL means is in here. A text goes to the deployment as it came, with the connection's *session*: the one
that HTTP's header ``Headrace-Session`` names, but it lives as long as the connection. It has the transaction,
``autocommit`` and the user variables, so BEGIN … COMMIT, SAVEPOINT and SET are what they are over HTTP. The connection
adds what HTTP leaves to its client: the token of its own writes, which goes with each statement, so that a client reads
what it has written.

A connection answers one command at a time. What arrives meanwhile waits, within a limit; a client that does not read
its answers is not read either. Rows are answered in pieces, between which others have their turn.

Who asks is proved by MySQL's own plugins from the verifiers that an account was given for that (``IDENTIFIED WITH
caching_sha2_password BY …``), or by the password itself over TLS. Wrong ones count for the address, with those of HTTP.
Rights are looked up again whenever an account changes: a connection whose account goes is told so and ends.
"""
