"""``make fuzz-wire``: bytes that Atheris finds by what the decoder does with them, 10 million of them by default.

Each makes a message or a ProtocolError, and no allocation of more than :data:`ALLOCATION_MB`. What does neither is
printed, and kept as ``crash-…`` in the current directory.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["worker.wire", "worker.protocol"]):
    from worker.protocol.messages import ProtocolError
    from worker.wire.codec import decode, encode
    from worker.wire.frames import Cutter, opened
    from worker.wire.vocabulary import CLASSES, EXPRESSIONS

from wire_objects import expression, instance

INPUT_MAX = 16_384
ALLOCATION_MB = 4
"""Of one object: 250 times the largest input. What all of an input's objects take together is held by
``test_wire_codec.py``."""
RSS_MB = 2_000
EXAMPLES = 4
"""Of each class, to begin with."""


def one(data: bytes) -> None:
    for take in (decode, opened, Cutter().cut):
        try:
            take(data)
        except ProtocolError:
            continue


def write_examples(corpus: Path) -> None:
    for kind in CLASSES:
        for seed in range(EXAMPLES):
            draw = random.Random(f"{kind.__name__} {seed}")
            made = expression(draw) if kind in EXPRESSIONS else instance(draw, kind)
            (corpus / f"{kind.__name__}-{seed}").write_bytes(encode(made))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10_000_000)
    parser.add_argument("--seed", type=int, default=0, help="0: by the clock")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as corpus, tempfile.NamedTemporaryFile("w", suffix=".dict") as names:
        write_examples(Path(corpus))
        names.writelines(f'"{kind.__name__}"\n' for kind in CLASSES)
        names.flush()
        limits = [f"-max_len={INPUT_MAX}", f"-malloc_limit_mb={ALLOCATION_MB}", f"-rss_limit_mb={RSS_MB}"]
        options = [
            f"-runs={given.runs}",
            f"-seed={given.seed}",
            "-print_final_stats=1",
            f"-dict={names.name}",
            *limits,
            corpus,
        ]
        atheris.Setup([sys.argv[0], *options], one)
        atheris.Fuzz()
