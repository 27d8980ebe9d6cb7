"""Who may what, as values: rights, what each kind of statement needs, and what of a text is a secret. Pure.

::

    Parsed ──► needed (statements.py) ──► Right, … ─┐
    account's grants, and those of its roles ──► Rights ──► allow? ── no ──► Forbidden

A right is a privilege on a table or view by its name, or on ``*``: on all of them and on the deployment. ``rights.py``
has the privileges, ``statements.py`` the table from kinds of statements to the rights that they need, in which every
kind stands, and ``secrets.py`` takes passwords out of texts that are logged or listed.

Names decide, as in MySQL: a grant outlives the table, and holds for the next one of the name. A view is read with the
rights that its maker had when it was made, so an application can be given views and no table.
"""
