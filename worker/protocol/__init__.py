"""The messages to a worker and its answers, as frozen dataclasses, which ``wire/`` carries between processes.

``messages.py`` has those of serving and recovery; ``operations.py`` the rare ones: archiving, walking a reader's state,
moving a domain, rebuilding a shard.
"""
