"""What several commands read, write or say in the same way: keys, plans, files, a release."""

import contextlib
import os
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path

import typer

from fedprikl.cli.console import notes, print_json, say
from fedprikl.documents import readable
from fedprikl.errors import InvalidInputError, ReferenceFileError
from fedprikl.front.plan_checks import validity
from fedprikl.privacy import Unit
from fedprikl.protocol import Plan, Release, SignedPlan
from fedprikl.reference import Reference
from fedprikl.reporting import ReleaseFacts, release_page, why_no_charts
from fedprikl.store import check_writable, write_whole

DATA = (".csv", ".csv.gz", ".parquet")
DRIFT_FOUND = 3  # exit code
BESIDE = ("", ".lock", "-journal", "-wal", "-shm")  # ends of the files of a database


class UnitName(StrEnum):
    """Whom a budget protects."""

    RECORD = "record"
    CLIENT = "client"

    @property
    def literal(self) -> Unit:
        """As the library has it."""
        return "client" if self is UnitName.CLIENT else "record"


def given_of(context: typer.Context, names: Sequence[str]) -> list[str]:
    """Which of these options a user gave."""
    sources = {name: context.get_parameter_source(name) for name in names}
    # By its name: newer versions of typer bring a click of their own.
    return [name for name, each in sources.items() if each is not None and each.name != "DEFAULT"]


def check_key(text: str) -> str:
    """A public key as it is compared, or nothing; what cannot be a key is wrong usage."""
    key = text.strip().lower()
    if key and not re.fullmatch("[0-9a-f]{64}", key):
        raise typer.BadParameter(
            "--key is malformed: a public key has 64 hexadecimal digits, as `fedprikl keys` prints "
            "them. Nothing was checked."
        )
    return key


def load_reference(path: Path) -> Reference:
    """The reference in a file; data that no reference was made of yet are told apart."""
    try:
        return Reference.load(path)
    except ReferenceFileError:
        if not path.exists() or not path.name.lower().endswith(DATA):
            raise
        raise InvalidInputError(
            f"{path} is no reference: it holds data. If they are public, make a reference of them "
            f"with `fedprikl reference {shlex.quote(str(path))} -o ref.json`, and use ref.json."
        ) from None


def reference_of(plan: Path, signed: SignedPlan, path: Path | None) -> Reference:
    """The reference of a plan: the file that was named, or ref.json beside the plan."""
    path = path or plan.parent / "ref.json"
    if not path.exists():
        raise InvalidInputError(f"There is no reference {path}. Name the file with --reference.")
    found = load_reference(path)
    if signed.plan.reference != found.fingerprint:
        raise InvalidInputError(
            f"{plan} was made with another reference than {path}. Name the one that it was made "
            "with (--reference), or plan again."
        )
    return found


def plan_words(signed: SignedPlan) -> str:
    """Which plan it is, for people."""
    plan, signer = signed.plan, signed.signer or "nobody"
    return f"serial {plan.serial}, valid {validity(plan)}, signed by {signer}"


def check_apart(
    outputs: Iterable[Path], inputs: Iterable[Path | None], clients: Path | None = None
) -> None:
    """Refuses an output that is one of these inputs, under any name, or lies in one.

    A database stands for the files beside it too, and the folder of the clients for what it links.
    """
    used = [Path(f"{path}{end}") for path in inputs if path is not None for end in BESIDE]
    if clients is not None:
        used += [clients, *(path for path in clients.rglob("*") if path.is_symlink())]
    known = {name: path for path in used for name in _names(path)}
    for output in outputs:
        place = Path(os.path.realpath(output))
        for each in (place, *place.parents):
            found = next((known[name] for name in _names(each) if name in known), None)
            if found is not None:
                raise InvalidInputError(
                    f"Cannot write {output}: it is, or lies in, {found}, which is never "
                    "overwritten. Choose another name. Nothing was written or charged."
                )


def _names(path: Path) -> list[object]:
    """What a file is known by: its path without links and, if it is there, its inode."""
    names: list[object] = [os.path.realpath(path)]
    with contextlib.suppress(OSError):
        found = path.stat()
        names.append((found.st_dev, found.st_ino))
    return names


def check_outputs(
    *paths: Path,
    force: bool,
    inputs: Iterable[Path | None] = (),
    clients: Path | None = None,
) -> None:
    """Refuses, before anything is computed or charged, what could not be written at the end.

    Also what would overwrite an input, or lie among the clients' files.
    """
    check_apart(paths, inputs, clients)
    for path in paths:
        if not path.parent.is_dir():
            raise InvalidInputError(f"Cannot write {path}: there is no folder {path.parent}.")
        if path.is_dir():
            raise InvalidInputError(f"Cannot write {path}: it is a folder.")
        if os.path.lexists(path) and not force:
            raise InvalidInputError(
                f"{path} exists already. Choose another name, or overwrite it with --force."
            )
        check_writable(path)
    if len({path.resolve() for path in paths}) < len(paths):
        raise InvalidInputError(f"Two outputs have the same name, {paths[0]}. Choose another.")


def write_release(
    release: Release,
    plan: Plan,
    costs: Mapping[str, str],
    *,
    output: Path,
    report: Path,
    absent: Sequence[str] = (),
) -> None:
    """The release first, then its page. A release that cannot be written is printed."""
    try:
        write_whole(output, readable(release.to_dict()))
    except InvalidInputError as error:
        print_json(release.to_dict())
        raise InvalidInputError(
            f"{error} The release has been charged: it stands on standard output. Keep it."
        ) from None
    try:
        write_whole(report, release_page(release, plan, costs, absent))
    except InvalidInputError as error:
        raise InvalidInputError(f"{error} The release itself is in {output}.") from None


def note_missing_charts(report: Path) -> None:
    """Says that a report has no charts, where it has none."""
    if why := why_no_charts():
        say(f"{report} has no chart. {why}", console=notes)


def exit_on_drift(release: Release, wanted: bool) -> None:
    """Ends with exit code 3 if drift was found and the user wants to know by it.

    The verdict is in the release, which is public: the code tells nothing more.
    """
    if wanted and release.drifted:
        raise typer.Exit(DRIFT_FOUND)


def print_release(release: Release, absent: Sequence[str] = ()) -> None:
    """The verdict; the columns; how much, in how many clients; what is protected."""
    headline, _, rest = str(ReleaseFacts.of(release, absent)).partition("\n")
    say(headline, style="bold")
    say(rest)
