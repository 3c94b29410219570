"""One of three MPyC parties: the total variation of shares that stand in a file. Run by a test.

python -m tests.secure_sum.mpyc_server SHARES.json --no-log -P localhost:PORT ... -I NUMBER
"""

import json
import sys
from pathlib import Path

PATH = sys.argv.pop(1)  # MPyC reads the rest when it is imported

from mpyc.runtime import mpc  # type: ignore[import-untyped]  # noqa: E402

from fedprikl.secure_sum.line_shares import PRIME  # noqa: E402


async def main() -> None:
    """V = sum_x max(0, c_x - h_x), of whole numbers below 2^20."""
    content = json.loads(Path(PATH).read_text())
    number = mpc.SecInt(24, p=PRIME)
    await mpc.start()
    held = [number(number.field(share)) for share in content["shares"][mpc.pid]]
    expected = content["expected"]
    short = [(h < c) * (c - h) for h, c in zip(held, expected, strict=True)]
    print(int(await mpc.output(mpc.sum(short))))
    await mpc.shutdown()


if __name__ == "__main__":
    mpc.run(main())
