"""The messages to a worker and its answers, as frozen dataclasses: ``wire/`` carries them between processes.

``messages.py`` has what serving and recovery say; ``operations.py`` what an operator or a leader asks now and then:
archiving, holding a reader's state, moving a domain, rebuilding a shard.
"""
