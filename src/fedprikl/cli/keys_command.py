"""`fedprikl keys`: the keys of an aggregator's or a site's folder, made once."""

from pathlib import Path
from typing import Annotated

import typer

from fedprikl.cli.console import print_json, say
from fedprikl.cli.options import Json
from fedprikl.deployment.settings import Home, home_folder
from fedprikl.errors import InvalidInputError
from fedprikl.protocol import SealingKey, SigningKey


def keys_command(
    home: Annotated[
        Path | None,
        typer.Argument(help="This host's folder; default: $FEDPRIKL_HOME or ~/.fedprikl."),
    ] = None,
    site: Annotated[
        bool, typer.Option("--site", help="A site's identity, for a roster, instead.")
    ] = False,
    json: Json = False,
) -> None:
    """Makes the aggregator's keys, or shows the public halves of those it has.

    Run it on the host that the keys are for; the private keys stay in the folder. Clients seal
    their answers to the sealing key, which goes into the plan; anybody verifies releases with the
    signing key. With --site it makes the identity that a roster knows a site by.

    Example: `fedprikl keys /srv/fedprikl`
    """
    place = Home(home or home_folder())
    try:
        place.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidInputError(f"Cannot make {place.folder}: {error.strerror}.") from None
    if site:
        keys = {"identity": SigningKey.load_or_create(place.identity).public}
        words = "identity, a line of the roster: {identity}"
    else:
        sealing = SealingKey.load_or_create(place.sealing_key).public
        keys = {"signing": SigningKey.load_or_create(place.signing_key).public, "sealing": sealing}
        words = (
            "sealing key, for `plan --aggregator`: {sealing}\n"
            "signing key, for `verify --signer` and `server init --organiser`: {signing}"
        )
    if json:
        print_json({"home": str(place.folder), **keys})
    else:
        say(f"home: {place.folder}\n{words.format(**keys)}")
