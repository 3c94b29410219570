"""What an installed fedprikl is made of: packages, their licences, and the lines of the lock.

    python -m deploy.packages         writes docs/licences.md
    python -m deploy.packages sbom    prints a CycloneDX list of what fedprikl needs with all extras

A package is allowed if everything its licence asks for can be done by a project under Apache-2.0
that depends on it without copying it.
"""

import json
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
LOCK = ROOT / "requirements-dev.lock"  # of which requirements.lock is a part
PAGE = ROOT / "docs" / "licences.md"
EXTRAS = ("plan", "parquet", "db", "report", "flower", "serve", "servers")  # of users
PERMISSIVE = {
    "0BSD", "Apache-2.0", "Apache-2.0 WITH LLVM-exception", "BSD-2-Clause", "BSD-3-Clause",
    "BSL-1.0", "CC0-1.0", "CNRI-Python", "HPND", "ISC", "MIT", "MIT-0", "MIT-CMU", "PSF-2.0",
    "Python-2.0", "LicenseRef-BSD", "LicenseRef-Public-Domain", "Unlicense", "Zlib",
}  # fmt: skip
# Their terms bind changes to their own files, and we neither change nor ship these.
BY_FILE = {"MPL-2.0"}
# Packages whose licence is not on the list, and why we may use them.
EXCEPTIONS = {
    "docutils": "builds the documentation only; of its files, only an editor mode is under the GPL",
}
# What metadata from before licence expressions says, where it says it in words.
IN_WORDS = {
    "apache 2.0": "Apache-2.0",
    "apache license 2.0": "Apache-2.0",
    "apache license, version 2.0": "Apache-2.0",
    "apache software license": "Apache-2.0",
    "apache2": "Apache-2.0",
    "bsd": "LicenseRef-BSD",  # of two or three clauses: the metadata does not say
    "bsd license": "LicenseRef-BSD",
    "3-clause bsd license": "BSD-3-Clause",
    "bsd 3-clause license": "BSD-3-Clause",
    "bsd-3-clause": "BSD-3-Clause",
    "isc license (iscl)": "ISC",
    "mit": "MIT",
    "mit license": "MIT",
    "mozilla public license 2.0 (mpl 2.0)": "MPL-2.0",
    "public domain": "LicenseRef-Public-Domain",
    "python software foundation license": "PSF-2.0",
    "the unlicense (unlicense)": "Unlicense",
}


@dataclass(frozen=True)
class Package:
    """An installed distribution."""

    found: Distribution

    @property
    def name(self) -> str:
        """As the lock writes it."""
        return canonicalize_name(self.found.metadata["Name"])

    @cached_property
    def licence(self) -> str:
        """An SPDX expression; what the metadata says otherwise, if it is none."""
        told: Any = self.found.metadata
        if expression := told.get("License-Expression"):
            return str(expression)
        words = [
            each.rpartition(" :: ")[2]
            for each in told.get_all("Classifier") or ()
            if each.startswith("License ::") and each != "License :: OSI Approved"
        ]
        words = words or [(told.get("License") or "").strip().partition("\n")[0]]
        return " AND ".join(sorted({IN_WORDS.get(each.lower(), each) for each in words}))

    @property
    def is_allowed(self) -> bool:
        """Whether one of its alternatives asks for nothing that we cannot do."""
        if self.name in EXCEPTIONS:
            return True
        plain = self.licence.replace("(", "").replace(")", "")
        return any(
            all(part in PERMISSIVE | BY_FILE for part in either.split(" AND "))
            for either in plain.split(" OR ")
        )

    def needs(self, extras: Iterable[str]) -> Iterator[Requirement]:
        """What it requires here, with these extras."""
        for text in self.found.requires or ():
            requirement = Requirement(text)
            marker = requirement.marker
            if marker is None or any(marker.evaluate({"extra": each}) for each in ("", *extras)):
                yield requirement


def closure(name: str, extras: Iterable[str] = ()) -> dict[str, Package]:
    """A package and all that it needs in this environment, by name."""
    found: dict[str, Package] = {}
    todo, seen = [(name, frozenset(extras))], set()
    while todo:
        current, wanted = todo.pop()
        if (current, wanted) in seen:
            continue
        seen.add((current, wanted))
        try:
            package = Package(distribution(current))
        except PackageNotFoundError:
            raise SystemExit(f"{current} is not installed here: run `make setup`.") from None
        found[package.name] = package
        todo += [
            (canonicalize_name(each.name), frozenset(each.extras)) for each in package.needs(wanted)
        ]
    return dict(sorted(found.items()))


def locked(names: Iterable[str]) -> str:
    """The lines of the lock about these packages, with their hashes."""
    entries = re.split(r"\n(?=\S)", LOCK.read_text())
    wanted = set(names)
    return "\n".join(
        e for e in entries if canonicalize_name(re.split(r"[\[=<> ;]", e)[0]) in wanted
    )


def sbom(wheel_digest: str = "") -> dict[str, Any]:
    """What an installation with all extras consists of: CycloneDX 1.6, the same on every call."""
    packages = closure("fedprikl", EXTRAS)
    root = packages.pop("fedprikl")
    everything = [_component(each) for each in packages.values()]
    subject = _component(root) | {"type": "application"}
    if wheel_digest:
        subject["hashes"] = [{"alg": "SHA-256", "content": wheel_digest}]
    content = {
        "metadata": {"component": subject},
        "components": everything,
        "dependencies": [
            {
                "ref": _purl(each),
                "dependsOn": sorted(
                    _purl(packages[name])
                    for name in {canonicalize_name(r.name) for r in each.needs(EXTRAS)}
                    if name in packages
                ),
            }
            for each in (root, *packages.values())
        ],
    }
    serial = uuid5(NAMESPACE_URL, json.dumps(content, sort_keys=True))
    head = {"bomFormat": "CycloneDX", "specVersion": "1.6", "serialNumber": f"urn:uuid:{serial}"}
    return head | {"version": 1} | content


def _purl(package: Package) -> str:
    return f"pkg:pypi/{package.name}@{package.found.version}"


def _component(package: Package) -> dict[str, Any]:
    return {
        "type": "library",
        "bom-ref": _purl(package),
        "name": package.name,
        "version": package.found.version,
        "purl": _purl(package),
        "licenses": [{"expression": package.licence}]
        if package.is_allowed
        else [{"license": {"name": package.licence or "unknown"}}],
    }


PREFACE = """fedprikl is under Apache-2.0 and contains no code of others. It needs the packages of
the first table, each under its own licence. The second table has what only `make test`, `make docs`
and `make paper` need. `make record` writes this page from the metadata of the packages that
`requirements-dev.lock` installs on Linux. A test refuses a licence that is not on the list in
`deploy/packages.py`."""


def licences_page() -> str:
    """docs/licences.md."""
    users = closure("fedprikl", EXTRAS)
    makers = closure("fedprikl", ("dev",))
    parts = [
        "# Licences",
        PREFACE,
        "## Needed to run",
        _table(each for name, each in users.items() if name != "fedprikl"),
        "## Needed to develop",
        _table(each for name, each in makers.items() if name not in users),
    ]
    return "\n\n".join(parts) + "\n"


def _table(packages: Iterable[Package]) -> str:
    rows = [f"| {each.name} | {each.found.version} | {each.licence} |" for each in packages]
    return "\n".join(["| package | version | licence |", "| --- | --- | --- |", *rows])


if __name__ == "__main__":
    if sys.argv[1:] == ["sbom"]:
        print(json.dumps(sbom(), indent=1))
    else:
        PAGE.write_text(licences_page())
