"""Databases elsewhere whose tables are kept here (``headrace/upstream``): how far each is followed, who waits for that.

What is known of them is what their followers write into the table ``headrace_upstream``, each time with the rows:
``positions.py`` compares positions, ``following.py`` reads them and waits. ``passing_on.py`` says what
may be asked of such a database itself.
"""
