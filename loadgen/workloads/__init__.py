"""Workloads: what an application asks of its database, without an application.

::

    lobsters.py   pages of a news site: visits.py draws who asks for what, by the published mix; pages.py and
                  counters.py say what each page reads and writes
    vote.py       stories with their votes: many reads, some votes, in batches
    crud.py       single rows by their key

A workload is a stream of jobs, each of which is done in a session of one target of ``loadgen.peers``, be it Headrace
or another system.
"""
