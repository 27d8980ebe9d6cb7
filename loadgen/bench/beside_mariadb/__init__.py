"""Measurements with MariaDB as their peer: the same statements on the same disk, turn and turn about.

Both servers are spoken to through bare sockets (``inserts.MariaDb``), so that no driver's time is in the figures.
"""
