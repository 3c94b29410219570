"""Audit: try to refute the privacy claim of a plan, or of a calibration, by experiment."""

from fedprikl.audit.calibrations import (
    AuditCase,
    client_case,
    exact_case,
    paper_case,
    worst_neighbours,
)
from fedprikl.audit.lower_bounds import AuditResult, audit
from fedprikl.audit.plan_audit import AuditedPlan, audit_plan

__all__ = [
    "AuditCase",
    "AuditResult",
    "AuditedPlan",
    "audit",
    "audit_plan",
    "client_case",
    "exact_case",
    "paper_case",
    "worst_neighbours",
]
