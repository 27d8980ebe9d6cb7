"""How a request becomes look-ups of views, and their answers one response.

``requests.py`` reads a query string or a body, ``lookups.py`` asks for one view, ``many_lookups.py`` for several in one
state of the reader map (``references.py`` lets one take values from another's answer), and ``response_cache.py`` keeps
answers by the text that asked, for as long as their reader stays as it is.
"""
