"""Privacy room: sensitivity, mechanisms, calibration, ledger, audit. Knows no divergence."""

from fedprikl.privacy.account import Account, RoundState
from fedprikl.privacy.adaptive_law import NoiseLaw
from fedprikl.privacy.audit import audit
from fedprikl.privacy.calibrated import Calibrated, NoiseKind, calibrate
from fedprikl.privacy.charges import AccountedRelease
from fedprikl.privacy.composition import total_epsilon
from fedprikl.privacy.gaussian import GaussianMechanism, calibrate_gaussian
from fedprikl.privacy.integer_laplace import calibrate_integer, laplace_variance
from fedprikl.privacy.inverse_sensitivity import InverseSensitivityMechanism, adaptive_release
from fedprikl.privacy.laplace import LaplaceMechanism, calibrate_laplace
from fedprikl.privacy.ledger import Ledger, Reservation
from fedprikl.privacy.ledger_file import Head
from fedprikl.privacy.losses import BoundedRangeLoss, PureLoss
from fedprikl.privacy.mechanism import AdditiveMechanism, Charge, Mechanism, register_mechanism
from fedprikl.privacy.moved_records import BatchScores, moved_anywhere, moved_sensitivity
from fedprikl.privacy.noise import SECURE_NOISE, InsecureSeededNoise, NoiseSource, SecureNoise
from fedprikl.privacy.reachable import Ranges, reachable_ranges
from fedprikl.privacy.sensitivity import (
    BatchIncrements,
    exact_sensitivity,
    rounding_slack,
    terms_sensitivity,
    worst_substitution,
)
from fedprikl.privacy.shared_noise import SharedMechanism, calibrate_shared
from fedprikl.privacy.spans import Span
from fedprikl.privacy.statement import PrivacyStatement, state_together
from fedprikl.privacy.together import Together, charge_together, share_out
from fedprikl.privacy.units import Unit
from fedprikl.privacy.vector_noise import VectorCalibrated, VectorMechanism

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
    "Span",
    "Together",
    "Unit",
    "VectorCalibrated",
    "VectorMechanism",
    "adaptive_release",
    "audit",
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
