"""SQL text to trees, and trees to text. The only room that knows sqlglot.

``syntax.py`` is the door to the library, ``grammar.py`` lists every node that some pass reads and refuses the rest by
name, ``reading.py`` is what others call, ``writing.py`` writes a tree so that it reads back the same, ``types.py`` has
the types that a column may have.
"""
