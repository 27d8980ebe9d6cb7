"""Some cases of the campaign on the real deployment, always the same, so that a failure is the change's own;
``python -m tests.campaign --subject tests.campaign.real:real`` draws seeds and runs for longer."""

from __future__ import annotations

from tests.campaign.real import real
from tests.campaign.run import Campaign

CASES = 14
"""Some twelve seconds."""
SECONDS = 600.0
"""A run that is not over by then hangs."""
SEED = 253_566_022


def test_the_campaign_finds_nothing_on_the_real_deployment() -> None:
    campaign = Campaign(real, "tests.campaign.real:real", shrink_seconds=20.0)
    assert campaign.run(seconds=SECONDS, seed=SEED, most_cases=CASES), campaign.reports
    assert campaign.tally.counts["cases"] == CASES
