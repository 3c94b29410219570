"""`fedprikl verify`: is a release genuine, and what does it say?"""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from fedprikl.cli.console import print_json
from fedprikl.errors import InvalidInputError
from fedprikl.federation import Release
from fedprikl.reporting import release_sentence

__all__ = ["verify_command"]


def verify_command(
    release: Annotated[Path, typer.Argument(help="A release, from `fedprikl estimate`.")],
    key: Annotated[
        str, typer.Option(help="The aggregator's public key, 64 hexadecimal digits.")
    ] = "",
    json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
) -> None:
    """Checks the signature of a release. Exit code 1 if it was changed or is not the key's.

    Without --key it only shows that the release is as its signer made it; compare the signer with
    the key you know.

    Example: `fedprikl verify release.json --key 3f5a...`
    """
    found = Release.load(release)
    if not (found.is_signed_by(key) if key else found.is_intact):
        raise InvalidInputError(
            f"{release} is NOT genuine: it was changed after it was signed, or another key signed "
            "it. Do not use it."
        )
    if json:
        print_json({"genuine": True, "signer": found.signer, "release": found.content})
        return
    console = Console(highlight=False)
    console.print(f"[green]genuine[/green], signed by {found.signer}", soft_wrap=True)
    console.print(release_sentence(found.content))
    console.print(found.content["privacy"]["statement"])
