"""`fedprikl aggregator`: runs the aggregator's side of a federation, until it is stopped."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from fedprikl.cli.running import (
    HealthPort,
    Logs,
    Poll,
    check_address,
    check_flower,
    note_relay,
    run_party,
)
from fedprikl.deployment.flower.parties import POLL, aggregator_processes
from fedprikl.deployment.settings import Home, home_folder
from fedprikl.deployment.tls import check_file

HEALTH_PORT = 8471


def aggregator_command(
    superlink: Annotated[str, typer.Argument(help="Address of the relay, host:port.")],
    secret: Annotated[Path, typer.Option(help="The relay's superexec.secret.")],
    root_certificates: Annotated[
        Path | None,
        typer.Option(help="Certificates the relay is trusted by.", show_default="the system's"),
    ] = None,
    health_port: HealthPort = HEALTH_PORT,
    log_format: Logs = "text",
    poll: Poll = POLL,
    server_app: Annotated[str, typer.Option(hidden=True)] = "",
) -> None:
    """Runs the aggregator: takes the runs that the relay has, and hosts their rounds.

    Runs the fedprikl that is installed here, whatever app the relay sends. $FEDPRIKL_HOME holds
    plan, reference, keys and ledger. Ends on Ctrl-C or SIGTERM; a round that goes on is then void.

    Example: `fedprikl aggregator relay.example.org:9443 --root-certificates ca.pem --secret
    superexec.secret`
    """
    check_flower()
    check_address(superlink)
    check_file(root_certificates, "certificate file", "It is the relay's ca.pem.")
    check_file(secret, "file", "It is the relay's superexec.secret.")
    home = Home(home_folder())
    check_file(home.sealing_key, "key", "Make the aggregator's keys with `fedprikl keys`.")
    note_relay(superlink, root_certificates, log_format)
    processes = partial(
        aggregator_processes,
        superlink=superlink,
        roots=root_certificates,
        secret=secret,
        app=server_app,
        poll=poll,
    )
    run_party(
        "aggregator",
        home.folder,
        processes,
        health_port=health_port,
        log_format=log_format,
        certificates=[root_certificates],
    )
