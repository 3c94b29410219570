"""Privacy room: sensitivity, noise, calibration, statements, audit. Knows no divergence."""

from fedprikl.privacy.audit import AuditResult, AuditTest, audit, lowest_bit
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
from fedprikl.privacy.statement import PrivacyStatement

__all__ = [
    "SECURE_NOISE",
    "AuditResult",
    "AuditTest",
    "BatchIncrements",
    "GaussianMechanism",
    "InsecureSeededNoise",
    "IntegerGaussianMechanism",
    "LaplaceMechanism",
    "Mechanism",
    "NoiseKind",
    "NoiseSource",
    "PrivacyStatement",
    "SecureNoise",
    "Substitution",
    "audit",
    "calibrate",
    "calibrate_gaussian",
    "calibrate_integer_gaussian",
    "calibrate_laplace",
    "classic_constant",
    "exact_sensitivity",
    "lowest_bit",
    "paper_kl_sensitivity",
    "paper_noise_gain",
    "paper_term_sensitivity",
    "paper_true_epsilon",
    "rounding_slack",
    "terms_sensitivity",
    "worst_substitution",
]
