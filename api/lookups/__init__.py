"""How a request becomes look-ups of views, and their answers one response.

``lookups.py`` reads a query string or a body and looks up one view, or several in one state of the reader map;
``references.py`` lets a look-up take values from another's answer; ``response_cache.py`` keeps answers by the text of
their request, for as long as their reader stays as it is.
"""
