"""The dataflow of one process: one thread runs its domains, a group commit makes their steps durable and visible::

    inbox ──► thread ──► domain host ──► Domain.handle ──► effects ──► group commit: sync, publish, answer, send

``domain_host.py`` has no thread, socket or clock, so the simulator runs it too. ``pacing.py`` sizes the slices of long
commands, ``memory_limiter.py`` keeps the memory limit after each batch, and ``hosted_domain.py`` holds reads that carry
a token until their reader reflects it. ``link_checks.py`` looks at what other workers send. ``watches.py`` tells who
watches an answer what each batch has changed in it.
"""
