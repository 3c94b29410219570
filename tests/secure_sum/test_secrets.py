"""Secrets show up in no repr and no error."""

import logging

import numpy as np
import pytest

from fedprikl.errors import FedPriKLError
from fedprikl.secure_sum import AggregatorStep, SumResult
from fedprikl.secure_sum.masking import ClientKeys
from fedprikl.secure_sum.messages import decode

from .helpers import Cohort, make_plan

STEPS = [step for step in AggregatorStep if step is not AggregatorStep.CLOSED]


def forms(secret: bytes) -> list[str]:
    return [secret.hex(), repr(secret)[2:-1], str(int.from_bytes(secret, "little"))]


def secrets_of(keys: ClientKeys) -> list[str]:
    seal = keys.seal_key.private_bytes_raw()
    signing = keys.sign_key.private_bytes_raw()
    raw = [seal, keys.mask_private, keys.self_seed, keys.share_key, signing]
    return [form for secret in raw for form in forms(secret)]


@pytest.mark.parametrize("step", STEPS)
def test_reprs_and_errors_show_no_secret(
    step: AggregatorStep, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    cohort = Cohort(make_plan(4, 2)).until(step)
    victim = cohort.clients[0]
    hidden = secrets_of(victim._keys)
    said = [repr(victim), repr(victim._keys), repr(cohort.aggregator), repr(victim._channels)]
    for at in range(5, 140):
        letter = bytearray(cohort.letters[1])
        letter[at : at + 1] = b"\xaa"
        cohort.letters[1] = bytes(letter)
        try:
            said.append(repr(decode(cohort.answer(1))))
        except FedPriKLError as error:
            said.append(f"{error} {error!r}")
    said += [repr(decode(data)) for round_ in cohort.sent for data in round_.values()]
    text = " ".join(said) + caplog.text
    assert not [form for form in hidden if form in text]


def test_results_do_not_print_the_sum() -> None:
    """An exact sum is not for logs; only its noised release is."""
    result = SumResult(np.array([123456, 7]), (0, 1, 2))
    assert "123456" not in repr(result)


def test_a_closed_client_has_forgotten_its_secrets() -> None:
    cohort = Cohort(make_plan(3, 2))
    cohort.finish()
    for client in cohort.clients:
        assert not hasattr(client, "_keys")
        assert not client._shares
        assert not client._channels
