"""The surroundings of an application that answers HTTP: its socket, its log, its start and its stop.

``server.py`` runs uvicorn, ``listening.py`` is what every process of Headrace that listens has, ``opening.py`` chooses
the deployment that the settings ask for, and ``last_words.py`` is what a command says while it stops.
"""
