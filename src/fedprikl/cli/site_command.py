"""`fedprikl site`: runs a site, until it is stopped."""

import tomllib
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from fedprikl.cli.options import SiteData, TableName, load_reference
from fedprikl.cli.running import (
    HealthPort,
    Poll,
    check_address,
    check_file,
    check_flower,
    check_node_key,
    note_relay,
    run_party,
)
from fedprikl.deployment.flower.parties import POLL, check_carried, site_processes
from fedprikl.deployment.settings import NodeSettings, data_settings, home_folder
from fedprikl.errors import InvalidInputError
from fedprikl.records import place_of

HEALTH_PORT = 8470


def site_command(
    superlink: Annotated[str, typer.Argument(help="Address of the relay, host:port.")],
    data: SiteData,
    reference: Annotated[Path, typer.Option(help="The reference Π.")],
    organiser: Annotated[str, typer.Option(help="Public key that must have signed a plan.")],
    node_key: Annotated[Path, typer.Option(help="Private key that the relay knows this site by.")],
    table: TableName = "",
    root_certificates: Annotated[
        Path | None,
        typer.Option(help="Certificates the relay is trusted by.", show_default="the system's"),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="A setting of the site, like largest-epsilon=1.0; repeatable."),
    ] = None,
    trusted_entities: Annotated[
        Path | None, typer.Option(help="Whose apps Flower accepts here.")
    ] = None,
    health_port: HealthPort = HEALTH_PORT,
    poll: Poll = POLL,
) -> None:
    """Runs a site: Flower's SuperNode and the process that answers its messages.

    Answers with the fedprikl that is installed here, whatever app the relay sends. Keeps both
    processes running; ends them on Ctrl-C or SIGTERM. $FEDPRIKL_HOME holds the site's memory.

    Example: `fedprikl site relay.example.org:9443 --root-certificates ca.pem --node-key node
    --data records.csv --reference ref.json --organiser 3f5a...`

    Example: `fedprikl site relay.example.org:9443 --root-certificates ca.pem --node-key node
    --data postgresql://db.example.org/clinic --table visits --reference ref.json
    --organiser 3f5a...`
    """
    check_flower()
    check_address(superlink)
    check_file(root_certificates, "certificate file", "It is the relay's ca.pem.")
    check_node_key(node_key)
    check_file(trusted_entities, "file of trusted entities", "Check the path.")
    place = place_of(data, table)
    if isinstance(place, Path):
        check_file(place, "file or folder of records", "Check the path.", folder=True)
    else:
        place.open()  # refuses what is not there
    load_reference(reference)
    more = _parse(settings or [])
    own = {
        **data_settings(place),
        "reference": str(reference.resolve()),
        "organiser": organiser,
    }
    for name in own.keys() & more.keys():
        raise InvalidInputError(f"--{name} and --set {name}=... say the same. Leave --set out.")
    config = own | more
    NodeSettings.of(config)
    check_carried(config)
    note_relay(superlink, root_certificates)
    processes = partial(
        site_processes,
        config=config,
        superlink=superlink,
        roots=root_certificates,
        node_key=node_key,
        trusted=trusted_entities,
        poll=poll,
    )
    run_party("site", home_folder(), processes, health_port=health_port)


def _parse(settings: list[str]) -> dict[str, str | float | bool]:
    """name=value in TOML, each once; a word without quotes is a text."""
    found: dict[str, str | float | bool] = {}
    for text in settings:
        name, equals, value = text.partition("=")
        try:
            parsed = tomllib.loads(f"value={value}")["value"]
        except (ValueError, RecursionError):
            parsed = value
        understood = equals and value.strip() and "\n" not in text and name not in found
        if not understood or not isinstance(parsed, str | int | float):
            raise InvalidInputError(
                f"--set {text!r} is not understood. Write name=value on one line, each name once. "
                "Leave a setting out instead of leaving it empty."
            )
        found[name] = parsed
    return found
