"""How texts compare: a collation's key for each text, and which collation a comparison goes by.

``collation.py``       the collations that there are, and the keys of texts, by which all equality goes
``coercibility.py``    which of several collations prevails, as in MySQL: COLLATE, then a column, then a constant
"""
