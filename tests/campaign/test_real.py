"""The campaign on the real deployment, for a few seconds and always from one seed, so that a failure is the change's
own; ``python -m tests.campaign --subject tests.campaign.real:real`` draws seeds and runs for longer."""

from __future__ import annotations

from tests.campaign.real import real
from tests.campaign.run import Campaign

SECONDS = 12.0
SEED = 253_566_022


def test_the_campaign_finds_nothing_on_the_real_deployment() -> None:
    campaign = Campaign(real, "tests.campaign.real:real", shrink_seconds=20.0)
    assert campaign.run(seconds=SECONDS, seed=SEED), campaign.reports
