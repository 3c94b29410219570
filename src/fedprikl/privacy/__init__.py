"""Privacy: sensitivity, laws of noise, calibration, accounts, ledger. Knows no divergence."""

from fedprikl.privacy.account import Account, LedgerRound, RoundState, TimeInterval
from fedprikl.privacy.adaptive import (
    InverseSensitivityMechanism,
    NoiseLaw,
    Ranges,
    adaptive_release,
    reachable_ranges,
)
from fedprikl.privacy.charges import (
    AccountedRelease,
    Charge,
    ComposedCharge,
    PureLoss,
    Unit,
    compose_charges,
    register_charge,
    share_out,
)
from fedprikl.privacy.composition import total_epsilon
from fedprikl.privacy.laws import (
    AUTOMATIC,
    Calibrated,
    Counts,
    GaussianMechanism,
    IntegerGaussianMechanism,
    IntegerLaplaceMechanism,
    LaplaceMechanism,
    Mechanism,
    Numbers,
    SharedCounts,
    calibrate,
    check_law,
    laplace_variance,
    register_law,
)
from fedprikl.privacy.ledger import Ledger
from fedprikl.privacy.looked import LookedMechanism
from fedprikl.privacy.noise import SECURE_NOISE, InsecureSeededNoise, NoiseSource, SecureNoise
from fedprikl.privacy.sensitivity import (
    BatchIncrements,
    BatchScores,
    contribution_sensitivity,
    exact_sensitivity,
    joint_sensitivity,
    rounding_slack,
    terms_sensitivity,
    worst_substitution,
)
from fedprikl.privacy.server_noise import ServersNoise
from fedprikl.privacy.shares import SharedMechanism
from fedprikl.privacy.statement import PrivacyStatement, compose_statements
from fedprikl.store import Head

__all__ = [
    "AUTOMATIC",
    "SECURE_NOISE",
    "Account",
    "AccountedRelease",
    "BatchIncrements",
    "BatchScores",
    "Calibrated",
    "Charge",
    "ComposedCharge",
    "Counts",
    "GaussianMechanism",
    "Head",
    "InsecureSeededNoise",
    "IntegerGaussianMechanism",
    "IntegerLaplaceMechanism",
    "InverseSensitivityMechanism",
    "LaplaceMechanism",
    "Ledger",
    "LedgerRound",
    "LookedMechanism",
    "Mechanism",
    "NoiseLaw",
    "NoiseSource",
    "Numbers",
    "PrivacyStatement",
    "PureLoss",
    "Ranges",
    "RoundState",
    "SecureNoise",
    "ServersNoise",
    "SharedCounts",
    "SharedMechanism",
    "TimeInterval",
    "Unit",
    "adaptive_release",
    "calibrate",
    "check_law",
    "compose_charges",
    "compose_statements",
    "contribution_sensitivity",
    "exact_sensitivity",
    "joint_sensitivity",
    "laplace_variance",
    "reachable_ranges",
    "register_charge",
    "register_law",
    "rounding_slack",
    "share_out",
    "terms_sensitivity",
    "total_epsilon",
    "worst_substitution",
]
