"""Whether a SuperLink can be reached, in words: Flower only says that it is unavailable."""

import os
import socket
import ssl
import tomllib
from pathlib import Path

from fedprikl.errors import DeploymentError

__all__ = ["check_connection"]

SECONDS = 10.0


def check_connection(name: str) -> None:
    """Raises a `DeploymentError` if the SuperLink of Flower's config file cannot be trusted.

    Connections that Flower manages itself, like its local simulation, are left to it.
    """
    home = Path(os.environ.get("FLWR_HOME") or Path.home() / ".flwr")
    path = home / "config.toml"
    if not path.exists():
        return
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8")).get("superlink", {}).get(name)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError):
        raise DeploymentError(f"Flower's config file {path} is not TOML. Correct it.") from None
    if not isinstance(found, dict):
        raise DeploymentError(
            f"Flower's config file {path} has no connection [superlink.{name}]. Add one with "
            "`address` and `root-certificates`."
        )
    host, _, port = str(found.get("address", "")).rpartition(":")
    if not host.strip("[]:") or not port.isdigit() or found.get("insecure"):
        return
    _shake_hands(host.strip("[]"), int(port), found.get("root-certificates"))


def _shake_hands(host: str, port: int, roots: str | None) -> None:
    try:
        context = ssl.create_default_context(cafile=None if roots is None else Path(roots))
        with socket.create_connection((host, port), SECONDS) as plain:
            context.wrap_socket(plain, server_hostname=host).close()
    except FileNotFoundError:
        raise DeploymentError(f"There is no certificate file {roots}. Check the path.") from None
    except ssl.SSLCertVerificationError as error:
        raise DeploymentError(
            f"The certificate of the SuperLink {host}:{port} is not accepted: "
            f"{error.verify_message}. Nothing was sent. Have its operator renew it, or check the "
            "root certificates of the connection."
        ) from None
    except OSError as error:
        raise DeploymentError(
            f"The SuperLink {host}:{port} cannot be reached: {error.strerror or error}. Check the "
            "address, and that it is running."
        ) from None
