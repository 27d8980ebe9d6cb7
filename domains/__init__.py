"""The engine: relational operators kept up to date by deltas, with state that may have holes. Pure.

A *domain* is a deterministic state machine. It takes one packet at a time and returns effects, which the worker
performs. Nothing here has a socket, clock, thread or randomness, or a file but through the store that a domain is
given. So the same code runs in a worker, in a seeded simulator, and in a bulk job::

             Write, Read, LinkUpdate, Upquery, Evict …             Publish, Send, Reply
    worker ──────────────────────────────────────────► Domain ──────────────────────────► worker
                                                         │ ▲
                                    rows by key, commit  ▼ │
                                                        Store (RocksDB, a dict)

A step processes one packet to completion. Updates go **down**: each vertex is visited at most once, after its parents,
with the deltas ``(row, weight)`` of all of them. Look-ups go **up**: a *hole* (a key absent from partial state) is
computed from the parents and filled on the way, within the step. Only an ingress can say "not here": then the read is
parked and an upquery goes to the domain above, which answers in the same link as its updates::

    base ─Δ─► σ ─Δ─► ⋈ ─Δ─► γ ─Δ─► reader          deltas: applied where the key is filled, dropped at a hole
    base ◄─── σ ◄─── ⋈ ◄─── γ ◄─── reader: a hole   pulls: answered by the first state that has the key

What must hold between any two steps (``invariants.py`` checks it, every simulated step runs it):

1. Every filled entry equals its query over the base rows that have been delivered: each write counts exactly once.
2. Evicting an entry evicts all that was computed from it, here and down every link, before the hole can be seen.
3. A join's entry stands on both sides' look-ups, and both stay filled for as long as it does, even where one is empty.
4. An update is not applied where its row meets a hole; it goes on if any index holds it.
5. A join that meets a hole on *either* side cannot complete an update: it evicts below what the row names instead.
6. Evicting a join key evicts what contains the key and what the rows there name, even if there are no rows.
7. A known-empty entry depends on what was consulted to find it empty.
8. MIN, MAX, top-k and DISTINCT refill from their parent when a retraction takes what they hold.

A recursion (``operators/recursion/``) is one vertex to these rules: its rounds go round within one step, and what
they look up is never a hole. So rules 2 and 3 ask nothing within the loop, an entry stands on its first parent's key
alone, and what comes to no end is evicted as by rule 5.

From below, each package imports only those before it: **values** and expressions (``language/``); the **plan** as data,
with packets (data) and commands (control) (``plan/``); the **store** of base tables (``store/``, and ``archive/`` for
what an archive is); **operators and state** (``operators/``); the **steps** (``engine/``), with the dispatcher
``engine/domain.py``.

Partial state is J. Gjengset's idea (*Partial State in Dataflow-Based Materialized Views*, chapter 4 for the hazards).
Its replay protocol is not needed here, because a domain pulls from itself.
"""
