"""A site in a process of its own, without Flower: a message per line, an answer per line.

Run by the Python of a clean environment, so it imports nothing but fedprikl.
"""

import json
import sys

from fedprikl.deployment.site import Envelope, Site
from fedprikl.protocol import Step


def main() -> None:
    states: dict[int, dict[str, bytes]] = {}
    for line in sys.stdin:
        asked = json.loads(line)
        site = Site(asked["config"], states.setdefault(asked["node"], {}))
        envelope = Envelope(asked["round"], bytes.fromhex(asked["message"]))
        if asked["what"] == "identity":
            answer = site.introduce(envelope.round_id, str(asked["node"]))
        else:
            answer = site.answer(Step(asked["what"]), envelope)
        told = {"message": answer.message.hex(), "refusal": answer.refusal}
        print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
