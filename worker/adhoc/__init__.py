"""SELECTs that no view answers: evaluated over one cut of the base tables, and nothing of it is kept.

The operators are those of the dataflow (``domains/engine/evaluation.py``); here is what they stand on, and where::

    few rows    between two steps, on the dataflow thread           tables as they are
    many rows   in a process beside, at the lowest priority          a cut: views of the stores, made between two steps

    dataflow thread ── cut ──► EvaluatorPool ── plan, reads ⇄ entries, rows ──► evaluator process

Either way each shard is read at exactly one position, and the answer waits until that is durable.
"""
