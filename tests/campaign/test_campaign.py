"""The campaign's run in CI: always the same cases, whatever the machine; some 20 seconds on each of two cores.
``make fuzz`` goes on for as long as one likes.

``HEADRACE_CAMPAIGN_CASES`` and ``HEADRACE_CAMPAIGN_SEED`` change number and seeds. A failure prints the shrunk script
and the line that runs it again.
"""

from __future__ import annotations

import os

import pytest

from tests.campaign.run import Campaign
from tests.campaign.subject import DEFAULT_SUBJECT, subject_named

CASES = int(os.environ.get("HEADRACE_CAMPAIGN_CASES", "24"))
"""Of each part: two thirds of a second each."""
SECONDS = 900.0
"""None of them takes so long; a run that is not over by then hangs."""
SEED = int(os.environ.get("HEADRACE_CAMPAIGN_SEED", "1"))
EVALUATED = "tests.campaign.evaluated:evaluated"

# Two parts, so that two processes of pytest-xdist share them; the planner alone takes a sixth beside.
PARTS = (
    (DEFAULT_SUBJECT, 0, CASES),
    (DEFAULT_SUBJECT, 500_000, CASES),
    (EVALUATED, 900_000, CASES // 6),
)


@pytest.mark.parametrize(("subject", "offset", "cases"), PARTS, ids=("first", "second", "planner"))
def test_campaign(subject: str, offset: int, cases: int) -> None:
    said: list[str] = []
    campaign = Campaign(subject_named(subject), subject, say=said.append, shrink_seconds=30.0)
    clean = campaign.run(seconds=SECONDS, seed=SEED + offset, most_cases=cases)
    print("\n".join(said))
    assert clean, "\n" + "\n".join(said)
    assert campaign.tally.counts["cases"] == cases
    assert campaign.tally.counts["reads compared"] > 0
