"""`fedprikl verify`: is a release genuine, and what does it say?"""

from pathlib import Path
from typing import Annotated

import typer

from fedprikl.cli.console import print_json, say
from fedprikl.cli.options import FailOnDrift, Json, PublicKey, check_key
from fedprikl.cli.release_output import exit_on_drift, plan_words, print_release
from fedprikl.front import verify
from fedprikl.protocol import SignedPlan
from fedprikl.protocol.answering import SERVERS


def verify_command(
    release: Annotated[Path, typer.Argument(help="A release, from `fedprikl estimate`.")],
    key: PublicKey = None,
    plan: Annotated[
        Path | None, typer.Option(help="Check too that the release is about this plan.")
    ] = None,
    fail_on_drift: FailOnDrift = False,
    json: Json = False,
) -> None:
    """Checks the signature of a release. Exit code 1 if it was changed or is not the key's.

    Without --signer it only shows that the release is as its signer made it; compare the signer
    with the key you know.

    Example: `fedprikl verify release.json --signer 3f5a...`
    """
    key = check_key(key)
    found = verify(release, key=key, plan=plan)
    signed = None if plan is None else SignedPlan.load(plan)
    if json:
        drift = {
            "verdict": found.outcome,
            "drifted": found.drifted,
            "findable": found.findable,
            "drifted_columns": list(found.drifted_columns),
        }
        print_json({"genuine": True} | drift | found.to_dict())
        exit_on_drift(found, fail_on_drift)
        return
    if signed is not None and signed.plan.servers is not None and signed.plan.servers.signing:
        say("genuine: signed by the servers that the plan names", style="green")
    elif found.privacy.trust.startswith(SERVERS):
        say(
            "unchanged since it was signed. Three servers sign a release together: give the plan "
            "(--plan), which names the keys of all of them"
        )
    elif key:
        say("genuine", style="green")
    else:
        say("unchanged since it was signed; compare the signer with the key you know")
    say(f"signer: {found.signer}\nreleased: {found.released_at}")
    if signed is not None:
        say(f"plan: {plan_words(signed)}")
    print_release(found)
    exit_on_drift(found, fail_on_drift)
