"""A view's SQL as Spark SQL: what ``headrace verify`` has an independent judge compute, and what answers a SELECT over
more rows than a server is to read. Pure; text in, text out.

MySQL's text (sqlglot's tree, by ``migrations/parse``) becomes one SELECT of Spark's over tables whose live columns are
``c0``, ``c1`` …. Nothing of the planner's graph, its rewriting or its operators takes part: joins, subqueries, groups,
DISTINCT, UNION and LIMIT are left to Spark as they are written. What is shared with the planner is the language itself:
how names are found, and which type an expression has, since the scale of a quotient is a matter of definition::

    SELECT author, COUNT(*) / 3 FROM stories WHERE author = ?
      ──► SELECT g0 AS c0, CAST(…a0… / NULLIF(…3…, 0) AS DECIMAL(24,4)) AS c1, g1 AS p0          key: p0
          FROM (SELECT t0.c1 AS g0, t0.c1 AS g1, COUNT(*) AS a0 FROM … t0 GROUP BY t0.c1, t0.c1)

A parameter is no value but a *column*: what it is compared with becomes an output beside the visible ones (``p0`` …),
a part of every group, DISTINCT and LIMIT below which it stands, so that one run answers for all its values at once.

=================  ==================================================================================================
``values.py``      how a value of one type is written as one of another: scales, text, moments
``functions.py``   each function, and where Spark's of the same name is another
``expressions.py`` typed expressions to Spark's text; values and conditions
``aggregates.py``  aggregates, of groups and of windows
``windows.py``     window functions
``source.py``      FROM
``block.py``       one SELECT
``query.py``       WITH, UNION, views, ORDER BY and LIMIT; :func:`judged` for a whole view
=================  ==================================================================================================

How the two differ, and what is done about it: text is compared by code point in both (Spark's ``UTF8_BINARY``); ``/``
on exact numbers has four more digits and NULL for a zero divisor; NULL is first ascending and last descending in
both; conditions are numbers (0 and 1) where they are values; GREATEST of a NULL is NULL; text becomes a number by its
beginning; DOUBLE is rounded half to even. What cannot be written so that it means the same is refused by name
(:class:`~domains.errors.Unsupported`): such a view is reported as not judged, and never as equal.
"""

from migrations.spark_sql.query import Judged, in_order, judged

__all__ = ["Judged", "in_order", "judged"]
