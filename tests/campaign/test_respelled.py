"""Programs of the respelling judge, the same in every run; ``HEADRACE_CAMPAIGN_CASES`` and ``_SEED`` change them."""

from __future__ import annotations

import os

import pytest

from domains.language.collating.collation import Collation
from tests.campaign.respelled import Respelled

CASES = int(os.environ.get("HEADRACE_CAMPAIGN_CASES", "48")) // 12
SEED = int(os.environ.get("HEADRACE_CAMPAIGN_SEED", "1"))


@pytest.mark.parametrize("collation", Collation)
def test_a_respelled_program_answers_as_one_with_a_single_spelling(collation: Collation) -> None:
    for seed in range(SEED, SEED + CASES):
        print(f"seed {seed}")
        program = Respelled(seed, collation)
        program.run(120)
        assert program.reads > 20
