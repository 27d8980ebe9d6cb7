"""Recursion: the least Y with Y = X₁ ∪ s(Y, X₂, …), kept up to date.

``s`` is what a round does: joins of Y with further parents, filters, projections. It is a dataflow of its own within
the operator, whose first source is what there is of Y. Of each row an entry has the number of its derivations::

    derivations(r)  =  how often r is in X₁  +  how often r is in s(Y, X₂, …)

UNION ALL: a row is in Y as often as it is derived, so changes go round until there are none left. UNION: it is in Y
once, if it is derived. There counting alone would be wrong: rows in a circle derive each other, whatever becomes of
where they came from. So a change is made in two parts (Gupta, Mumick and Subrahmanian, *Maintaining Views
Incrementally*, 1993)::

    take   what has lost a derivation goes, though it may have others; what was derived from it loses some in its turn
    give   what is gone, or new, and has derivations, comes; what is derived from it has more of them

**The invariant** between two changes: derivations are exact, and Y has just the rows that have some. **Why nothing is
left that derives only itself**: a row stays through *take* if it has lost no derivation, so each of those that it had
is one of rows that stayed. Of how it was derived first, without need of itself, no step is lost. And each row that
*give* brings is derived of rows that are there before it.

Where rows have the same values in the *carried* columns they are a recursion of their own: an entry is by some of
these. What a round looks up of further parents is there completely, so no round meets a hole (``materialize.py``).

A recursion that comes to no end has too many rows, or rounds: then its entry is a hole again, with all below it, and
whoever reads it hears why. A write only ever gives it up. Only what always ends is kept whole (``Traits.ends``).

==================  =====================================================================
``rounds.py``       what a round does, and what it may ask
``entries.py``      the entries, and how a change goes round
``best.py``         those of MIN and MAX, of which a round goes on from the best rows alone
``fixed_point.py``  the operator
==================  =====================================================================
"""
