"""Privacy room: sensitivity, noise, calibration, ledger, audit. Knows no divergence."""

from fedprikl.privacy.account import Account, Round, RoundState
from fedprikl.privacy.audit import AuditResult, AuditTest, audit, lowest_bit
from fedprikl.privacy.calibrated import Calibrated
from fedprikl.privacy.calibration import (
    GaussianMechanism,
    IntegerGaussianMechanism,
    LaplaceMechanism,
    Mechanism,
    NoiseKind,
    calibrate,
    calibrate_gaussian,
    calibrate_integer_gaussian,
    calibrate_laplace,
    classic_constant,
    paper_noise_gain,
    paper_true_epsilon,
)
from fedprikl.privacy.charges import AccountedRelease, Charge, charge_from_dict, charge_to_dict
from fedprikl.privacy.composition import basic_epsilon, largest_fitting_epsilon, total_epsilon
from fedprikl.privacy.integer_laplace import (
    IntegerLaplaceMechanism,
    calibrate_integer,
    calibrate_integer_laplace,
    laplace_variance,
)
from fedprikl.privacy.ledger import Ledger, Reservation
from fedprikl.privacy.ledger_file import Entry, Head
from fedprikl.privacy.noise import SECURE_NOISE, InsecureSeededNoise, NoiseSource, SecureNoise
from fedprikl.privacy.sensitivity import (
    BatchIncrements,
    Substitution,
    exact_sensitivity,
    paper_kl_sensitivity,
    paper_term_sensitivity,
    rounding_slack,
    terms_sensitivity,
    worst_substitution,
)
from fedprikl.privacy.shared_gaussian import SharedGaussianMechanism, calibrate_shared_gaussian
from fedprikl.privacy.shared_laplace import (
    SAMPLER_DELTA,
    SharedLaplaceMechanism,
    calibrate_shared_laplace,
)
from fedprikl.privacy.shared_noise import SharedMechanism, calibrate_shared
from fedprikl.privacy.statement import PrivacyStatement

__all__ = [
    "SAMPLER_DELTA",
    "SECURE_NOISE",
    "Account",
    "AccountedRelease",
    "AuditResult",
    "AuditTest",
    "BatchIncrements",
    "Calibrated",
    "Charge",
    "Entry",
    "GaussianMechanism",
    "Head",
    "InsecureSeededNoise",
    "IntegerGaussianMechanism",
    "IntegerLaplaceMechanism",
    "LaplaceMechanism",
    "Ledger",
    "Mechanism",
    "NoiseKind",
    "NoiseSource",
    "PrivacyStatement",
    "Reservation",
    "Round",
    "RoundState",
    "SecureNoise",
    "SharedGaussianMechanism",
    "SharedLaplaceMechanism",
    "SharedMechanism",
    "Substitution",
    "audit",
    "basic_epsilon",
    "calibrate",
    "calibrate_gaussian",
    "calibrate_integer",
    "calibrate_integer_gaussian",
    "calibrate_integer_laplace",
    "calibrate_laplace",
    "calibrate_shared",
    "calibrate_shared_gaussian",
    "calibrate_shared_laplace",
    "charge_from_dict",
    "charge_to_dict",
    "classic_constant",
    "exact_sensitivity",
    "laplace_variance",
    "largest_fitting_epsilon",
    "lowest_bit",
    "paper_kl_sensitivity",
    "paper_noise_gain",
    "paper_term_sensitivity",
    "paper_true_epsilon",
    "rounding_slack",
    "terms_sensitivity",
    "total_epsilon",
    "worst_substitution",
]
