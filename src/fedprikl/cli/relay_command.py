"""`fedprikl relay`: runs the relay of a small federation, until it is stopped."""

from pathlib import Path
from typing import Annotated

import typer

from fedprikl.cli.console import notes, say
from fedprikl.cli.running import HealthPort, Logs, check_flower, run_party
from fedprikl.deployment.flower.parties import prepare_relay, relay_processes

HEALTH_PORT = 8472


def relay_command(
    folder: Annotated[Path, typer.Argument(help="Its certificates, secret and database.")],
    name: Annotated[str, typer.Option(help="What others call this host: a name or an address.")],
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "0.0.0.0",  # noqa: S104
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port to listen on.")] = 9443,
    days: Annotated[float, typer.Option(help="How long a new certificate is valid.")] = 365.0,
    health_port: HealthPort = HEALTH_PORT,
    log_format: Logs = "text",
) -> None:
    """Runs Flower's SuperLink with TLS and registered nodes; makes keys and certificates first.

    Give ca.pem to everybody, superexec.secret to the aggregator only. No ServerApp runs here.

    Example: `fedprikl relay relay/ --name relay.example.org`
    """
    check_flower()
    for file in prepare_relay(folder, name=name, days=days):
        say(f"made {folder / file}", console=notes)
    processes = relay_processes(folder, host=host, port=port)
    run_party(
        "relay",
        folder,
        lambda _: processes,
        health_port=health_port,
        log_format=log_format,
        certificates=[folder / "server.pem"],
    )
