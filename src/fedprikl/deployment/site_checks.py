"""What a site checks of an invitation before it reads a record, and its own budget."""

from fedprikl.deployment.settings import NodeSettings
from fedprikl.errors import BudgetExceededError, PolicyRefusal
from fedprikl.privacy import Ledger
from fedprikl.protocol import (
    ClientSession,
    Invitation,
    Plan,
    Roster,
    SigningKey,
    check_period,
    check_roster,
    check_validity,
    trust_of,
)
from fedprikl.protocol.policy import check_protected
from fedprikl.protocol.released_period import charged_span

__all__ = ["charge_own_budget", "check_before_reading", "credentials"]


def check_before_reading(invitation: Invitation, settings: NodeSettings, *, at: str) -> None:
    """Raises a `PolicyRefusal` if it is not good enough. Looks at no record."""
    signed, plan = invitation.signed, invitation.signed.plan
    if not signed.is_signed_by(settings.policy.organiser):
        raise PolicyRefusal("the plan is not signed by the organiser this client trusts")
    if not plan.aggregator:
        raise PolicyRefusal("the plan names no aggregator to seal the answers to")
    check_validity(plan, settings.policy, at=at)
    check_protected(plan, settings.policy)
    check_period(invitation, at=at)
    if trust_of(plan).shares_noise and not plan.roster:
        raise PolicyRefusal("without a trusted aggregator it needs a roster of clients")
    check_roster(invitation, settings.policy, *credentials(plan, settings))
    _check_own_budget(invitation, settings)


def credentials(plan: Plan, settings: NodeSettings) -> tuple[Roster | None, SigningKey | None]:
    """What the site has for a plan with a roster; its files are not touched for another."""
    if not plan.roster:
        return None, None
    return settings.load_roster(), settings.load_identity()


def _check_own_budget(invitation: Invitation, settings: NodeSettings) -> None:
    """Refuses early what the site's own ledger would not allow when the counts are to leave."""
    plan, sums = invitation.signed.plan, invitation.sums
    charge = trust_of(plan).client_charge(sums.clients)
    if charge is None:
        return
    if not settings.ledger.exists():
        raise PolicyRefusal("without a trusted aggregator it needs a budget of its own")
    with Ledger.open(settings.ledger, create=False) as ledger:
        if plan.population not in ledger.populations():
            raise PolicyRefusal("without a trusted aggregator it needs a budget of its own")
        try:
            span = charged_span(plan, invitation.period)
            ledger.check(plan.population, charge, span=span, unit=plan.unit)
        except BudgetExceededError:
            raise PolicyRefusal("its own budget does not allow another round") from None


def charge_own_budget(
    session: ClientSession, settings: NodeSettings, *, at: str, only_check: bool = False
) -> None:
    """Charges the site's own ledger, where the sum itself is the release; or raises."""
    charge, invitation = session.charge, session.invitation
    if charge is None:
        return
    plan = invitation.signed.plan
    span = charged_span(plan, invitation.period)
    with Ledger.open(settings.ledger, create=False) as ledger:
        if only_check:
            ledger.check(plan.population, charge, span=span, unit=plan.unit)
        else:
            round_id = invitation.round_id
            ledger.reserve(
                plan.population, charge, round_id=round_id, at=at, span=span, unit=plan.unit
            )
