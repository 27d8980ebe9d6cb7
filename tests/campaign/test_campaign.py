"""The campaign's run in CI: about one minute over both cores. ``make fuzz`` runs it for as long as one likes.

``HEADRACE_CAMPAIGN_SECONDS`` and ``HEADRACE_CAMPAIGN_SEED`` change length and seeds. A failure prints the shrunk script
and the line that runs it again.
"""

from __future__ import annotations

import os

import pytest

from tests.campaign.run import Campaign
from tests.campaign.subject import DEFAULT_SUBJECT, subject_named

SECONDS = float(os.environ.get("HEADRACE_CAMPAIGN_SECONDS", "60"))
SEED = int(os.environ.get("HEADRACE_CAMPAIGN_SEED", "1"))
EVALUATED = "tests.campaign.evaluated:evaluated"

# Two parts, so that two processes of pytest-xdist share them; the planner alone takes a tenth beside.
PARTS = (
    (DEFAULT_SUBJECT, 0, 0.95),
    (DEFAULT_SUBJECT, 500_000, 0.95),
    (EVALUATED, 900_000, 0.1),
)


@pytest.mark.parametrize(("subject", "offset", "share"), PARTS, ids=("first", "second", "planner"))
def test_campaign(subject: str, offset: int, share: float) -> None:
    said: list[str] = []
    campaign = Campaign(subject_named(subject), subject, say=said.append, shrink_seconds=30.0)
    clean = campaign.run(seconds=SECONDS * share, seed=SEED + offset)
    print("\n".join(said))
    assert clean, "\n" + "\n".join(said)
    assert campaign.tally.counts["reads compared"] > 0
