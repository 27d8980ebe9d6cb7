"""Reports: a result's JSON as a page of HTML, with its pictures.

::

    result.json ──► curves.py (matplotlib, a program of its own) ──► latency.svg, memory.svg, timeline.svg
         └────────► page.py ─────────────────────────────────────────┴──► result.html, all in one file
"""
