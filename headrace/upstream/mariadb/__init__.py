"""A MariaDB as the upstream: ``columns.py`` has its types, ``source.py`` asks by SQL, ``stream.py`` reads the binlog,
and ``statements.py`` says what becomes of definitions; ``kind.py`` is the door."""
