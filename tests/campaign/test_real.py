"""The campaign on the real deployment, for a few seconds; ``--subject tests.campaign.real:real`` runs it for longer."""

from __future__ import annotations

import random

from tests.campaign.real import real
from tests.campaign.run import Campaign

SECONDS = 12.0


def test_the_campaign_finds_nothing_on_the_real_deployment() -> None:
    seed = random.SystemRandom().randrange(1_000_000_000)
    print(f"seed {seed}")
    campaign = Campaign(real, "tests.campaign.real:real", shrink_seconds=20.0)
    assert campaign.run(seconds=SECONDS, seed=seed), campaign.reports
