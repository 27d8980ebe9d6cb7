"""``python -m tests.campaign``: the campaign on the command line. Exit code 1 if it found something."""

from __future__ import annotations

import argparse
import json
import random
import sys
from pathlib import Path

from tests.campaign.run import SHRINK_SECONDS, Campaign
from tests.campaign.shrink import parse_recipe
from tests.campaign.subject import DEFAULT_SUBJECT, subject_named


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.campaign", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long")
    parser.add_argument("--seed", type=int, help="the first case's seed; drawn and printed without it")
    parser.add_argument("--subject", default=DEFAULT_SUBJECT, help="module:factory of what is tested")
    parser.add_argument("--domains", type=int, help="as many in every case, instead of 1 to 4 by seed")
    parser.add_argument("--shards", type=int, help="of each domain, as many in every case, instead of 1 to 4 by seed")
    parser.add_argument("--partial", action=argparse.BooleanOptionalAction, help="state partial, or all of it full")
    parser.add_argument("--full", dest="partial", action="store_false", help="the same as --no-partial")
    parser.add_argument(
        "--bulk", action=argparse.BooleanOptionalAction, help="full states in bulk while the case goes on, or never"
    )
    parser.add_argument("--failures", type=int, default=1, help="stop after so many findings")
    parser.add_argument("--replay", help="SEED or SEED:RECIPE, as a failure prints it")
    parser.add_argument("--shrink-seconds", type=float, default=SHRINK_SECONDS)
    parser.add_argument("--json", type=Path, help="write the summary here, too")
    options = parser.parse_args()
    campaign = Campaign(
        subject_named(options.subject),
        options.subject,
        options.domains,
        options.partial,
        options.shards,
        options.bulk,
        shrink_seconds=options.shrink_seconds,
    )
    if options.replay:
        seed, _, recipe = options.replay.partition(":")
        return 0 if campaign.run_case(int(seed), parse_recipe(recipe) if recipe else None) else 1
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(1_000_000_000)
    print(f"campaign on {options.subject} from seed {seed} for {options.seconds:.0f} s")
    clean = campaign.run(seconds=options.seconds, seed=seed, failures=options.failures)
    if options.json:
        options.json.write_text(json.dumps(campaign.summary(seed, options.seconds), indent=2) + "\n")
    return 0 if clean else 1


if __name__ == "__main__":
    sys.exit(main())
