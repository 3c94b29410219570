"""Privacy: sensitivity, mechanisms, calibration, ledger. Knows no divergence."""

from fedprikl.privacy.account import Account, RoundState, TimeInterval
from fedprikl.privacy.calibrated import (
    Calibrated,
    NoiseKind,
    VectorCalibrated,
    VectorMechanism,
    calibrate,
)
from fedprikl.privacy.composition import total_epsilon
from fedprikl.privacy.integer_noise import calibrate_integer, laplace_variance
from fedprikl.privacy.inverse_sensitivity import (
    InverseSensitivityMechanism,
    NoiseLaw,
    adaptive_release,
)
from fedprikl.privacy.ledger import Ledger, Reservation
from fedprikl.privacy.losses import BoundedRangeLoss, PureLoss, Unit
from fedprikl.privacy.mechanism import (
    AccountedRelease,
    AdditiveMechanism,
    Charge,
    Mechanism,
    Together,
    charge_together,
    register_mechanism,
    share_out,
)
from fedprikl.privacy.noise import SECURE_NOISE, InsecureSeededNoise, NoiseSource, SecureNoise
from fedprikl.privacy.reachable import Ranges, reachable_ranges
from fedprikl.privacy.real_noise import (
    GaussianMechanism,
    LaplaceMechanism,
    calibrate_gaussian,
    calibrate_laplace,
)
from fedprikl.privacy.sensitivity import (
    BatchIncrements,
    BatchScores,
    exact_sensitivity,
    moved_anywhere,
    moved_sensitivity,
    rounding_slack,
    terms_sensitivity,
    worst_substitution,
)
from fedprikl.privacy.shared_noise import SharedMechanism, calibrate_shared
from fedprikl.privacy.statement import PrivacyStatement, state_together
from fedprikl.store import Head

__all__ = [
    "SECURE_NOISE",
    "Account",
    "AccountedRelease",
    "AdditiveMechanism",
    "BatchIncrements",
    "BatchScores",
    "BoundedRangeLoss",
    "Calibrated",
    "Charge",
    "GaussianMechanism",
    "Head",
    "InsecureSeededNoise",
    "InverseSensitivityMechanism",
    "LaplaceMechanism",
    "Ledger",
    "Mechanism",
    "NoiseKind",
    "NoiseLaw",
    "NoiseSource",
    "PrivacyStatement",
    "PureLoss",
    "Ranges",
    "Reservation",
    "RoundState",
    "SecureNoise",
    "SharedMechanism",
    "TimeInterval",
    "Together",
    "Unit",
    "VectorCalibrated",
    "VectorMechanism",
    "adaptive_release",
    "calibrate",
    "calibrate_gaussian",
    "calibrate_integer",
    "calibrate_laplace",
    "calibrate_shared",
    "charge_together",
    "exact_sensitivity",
    "laplace_variance",
    "moved_anywhere",
    "moved_sensitivity",
    "reachable_ranges",
    "register_mechanism",
    "rounding_slack",
    "share_out",
    "state_together",
    "terms_sensitivity",
    "total_epsilon",
    "worst_substitution",
]
