"""Somebody who wants in: a stranger at every port of a cluster, and users of each right at every endpoint.

::

    headrace up ──► its processes ──► every port that they listen on ──► stranger.py   bytes, and what comes back
         │                                                               keeper.py     znodes, without the secret
         └── POST /v1/sql, keys ──► who_may.py: endpoints and statements ──► both ways: who may, and who may not

Afterwards every process is alive, none has grown, the leader is the same one, and the cluster serves and changes.
``make attack`` runs it; a short form is among the tests.
"""
