"""The ways in. Each reads one protocol and calls the endpoints; none knows what a view is.

``wire_http.py`` answers the common calls on the connection itself, before uvicorn builds a request; ``asgi.py`` answers
the same calls through ASGI; everything else goes to FastAPI. ``opening.py`` answers until there is a deployment. Below
them is ``tls.py``, where the server has a certificate; ``browsers.py`` says what pages of other origins may do.
"""
