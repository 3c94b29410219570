"""`fedprikl federate`: starts a round on a running federation and follows it to the release."""

from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from fedprikl.cli.console import notes, print_json, say
from fedprikl.cli.options import (
    Json,
    PublicKey,
    ReleaseFiles,
    check_key,
    check_outputs,
    grouped,
    reference_of,
)
from fedprikl.cli.release_output import plan_words, print_release, write_release
from fedprikl.cli.running import check_flower
from fedprikl.deployment.flower import APP_FOLDER
from fedprikl.deployment.flower.organiser import check_connection, follow_round, roster_names
from fedprikl.deployment.progress import named
from fedprikl.errors import DeploymentError, FedPriKLError, InvalidInputError
from fedprikl.front.checking import check_valid, now
from fedprikl.protocol import SignedPlan
from fedprikl.reporting.facts import included


@grouped
def federate_command(
    superlink: Annotated[
        str, typer.Argument(help="Name of the SuperLink connection in Flower's config file.")
    ],
    key: PublicKey,
    files: ReleaseFiles,
    plan: Annotated[
        Path, typer.Option(help="Your copy of the plan; the aggregator finds its own by content.")
    ] = Path("plan.json"),
    clients: Annotated[int, typer.Option(min=3, help="Wait until so many are connected.")] = 3,
    everybody: Annotated[
        bool,
        typer.Option(
            "--all", help="No release unless all of the roster are counted; else all connected."
        ),
    ] = False,
    wait: Annotated[float, typer.Option(help="Seconds to wait for them.")] = 60.0,
    step_timeout: Annotated[float, typer.Option(help="Seconds a step waits for answers.")] = 120.0,
    grace: Annotated[
        float, typer.Option(help="Seconds a step still waits once enough clients answered.")
    ] = 30.0,
    timeout: Annotated[
        float | None,
        typer.Option(
            min=1.0,
            help="Seconds until the run is given up and stopped.",
            show_default="as long as its waits may take",
        ),
    ] = None,
    roster: Annotated[
        Path | None, typer.Option(help="The roster of the plan: names sites that are lost.")
    ] = None,
    flower_app: Annotated[
        Path,
        typer.Option("--app", help="Flower app to run.", show_default="the one of this package"),
    ] = APP_FOLDER,
    federation: Annotated[
        list[str] | None,
        typer.Option("--federation-config", help="Passed on to Flower, for simulations."),
    ] = None,
    verbose: Annotated[bool, typer.Option(help="Show Flower's own lines too.")] = False,
    json: Json = False,
) -> None:
    """Starts a round against a SuperLink, shows its progress, verifies and writes the release.

    Says what it waits for. Stops the run on Ctrl-C and after --timeout: the aggregator then
    releases and charges nothing. Exit code 1, with the reason, if there is no release.

    Example: `fedprikl federate my-superlink --plan plan.json --signer 3f5a... --clients 20`
    """
    check_flower()
    if not key or not key.strip():
        raise typer.BadParameter(
            "--signer is empty: without the aggregator's key the relay could make a release itself."
        )
    key = check_key(key)
    output, report = files.output, files.report
    check_outputs(output, report, force=files.force, inputs=(plan, roster))
    signed = SignedPlan.load(plan)
    if signed.plan.is_series:
        raise InvalidInputError(
            "The plan is for a series, with a release for every period. Run what is due with "
            "`fedprikl monitor run --federation`."
        )
    check_valid(signed.plan, now())
    names = {} if roster is None else roster_names(roster, signed.plan, clients=clients)
    check_connection(superlink)
    config: dict[str, str | float] = {
        "plan": signed.plan.fingerprint,
        "clients": clients,
        "wait": wait,
        "step-timeout": step_timeout,
        "grace": grace,
    }
    if everybody:  # an aggregator of an earlier version does not know the word
        config["everybody"] = True
    say(f"plan: {plan_words(signed)}", console=notes)
    try:
        release, progress = follow_round(
            signed.plan,
            key,
            superlink,
            config,
            app=flower_app,
            federation=federation or [],
            timeout=timeout,
            verbose=verbose,
            members=len(names),
            tell=lambda line: say(named(line, names), console=notes),
        )
    except DeploymentError as error:
        raise DeploymentError(named(str(error), names)) from None
    progress = [named(line, names) for line in progress]
    beside = None  # the organiser need not have the reference
    with suppress(FedPriKLError):
        beside = reference_of(plan, signed, None)
    left_out = len(names) - included(release)  # below 0 without a roster
    absent = [f"The roster has {len(names)} sites; {left_out} not counted."] if left_out > 0 else []
    write_release(
        release, signed.plan, {}, output=output, report=report, absent=absent, reference=beside
    )
    if json:
        print_json(
            release.to_dict()
            | {"verdict": release.outcome, "progress": progress, "report": str(report)}
        )
        return
    print_release(release, absent)
    say(f"\nverified: signed with the aggregator's key\nsigner: {release.signer}")
    say(f"release: {output}\nreport: {report}")
