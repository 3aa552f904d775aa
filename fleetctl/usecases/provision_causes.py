"""Provision, use-case layer: a failure under the code of its cause; what is left, and how to remove it. Never does anything."""

from __future__ import annotations

import errno
from collections.abc import Collection, Sequence

from fleetctl.domain.capacity import Leftover, ProvisionIntent
from fleetctl.domain.ids import PoolId, Sha256
from fleetctl.domain.people import Diagnostic
from fleetctl.domain.plan import Plan
from fleetctl.domain.pool import PoolSpec
from fleetctl.domain.provision import ProvisionPlan
from fleetctl.errors import CapacityUnavailable, CredentialsMissing, FleetctlError, Interrupted, ProvisionFailed
from fleetctl.planning.check_provision import is_guard
from fleetctl.planning.provision_codes import Action
from fleetctl.planning.provision_errors import Trouble, classify
from fleetctl.ports.state import Records

_MOST_NAMED = 8


def standing(pool: PoolId, ids: Collection[str], tagged: Sequence[Leftover]) -> tuple[str, ...]:
    """Return a line per thing that exists of a pool, machines first, and how to remove it all; () where nothing does.

    Args:
        ids: what the state holds; tagged: what the cloud has with the pool's tag.
    """
    if not ids and not tagged:
        return ()
    order = {"machine": 0, "disk": 1, "card": 2, "other": 3}
    named = sorted(tagged, key=lambda o: (order[o.kind], o.id))
    lines = [f"still there: {kind_of(o)} {o.name} ({o.state})" for o in named[:_MOST_NAMED]]
    rest = len(named) - len(lines) or (0 if named else len(ids))
    if rest:
        lines.append(f"still there: {rest} {'more of' if named else 'resources in the state of'} pool {pool}")
    return (*lines, f"go on with: fleetctl provision; or remove all of it: fleetctl release {pool}")


def kind_of(o: Leftover) -> str:
    """Return what a leftover is, in one word: Azure says so in its id."""
    parts = o.id.split("/")
    return parts[-2] if o.kind == "other" and len(parts) > 3 else o.kind


def of_disk(e: OSError) -> Exception:
    """Return the error of a file that cannot be written: the disk is full, or it may not be; another one as it is."""
    what = e.filename or "a file of fleetctl"
    if e.errno in (errno.ENOSPC, errno.EDQUOT):
        text = f"the disk is full: {what} cannot be written."
        return ProvisionFailed("provision.disk_full", text, hint="Free some space, then run: fleetctl provision")
    if e.errno in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST, errno.EISDIR):
        text = f"{what} cannot be written: {(e.strerror or 'refused').lower()}."
        return ProvisionFailed("provision.folder", text, hint="Make the folder .fleetctl writable for you, then run: fleetctl provision")
    return e


def unfinished(plan: Plan, records: Records) -> tuple[ProvisionIntent, ...]:
    """Return the tries that did not end, of pools that the plan does not make any more: no run of this plan looks for what they left."""
    made = {p.pool for p in plan.pools}
    found = (i for i in records.all(ProvisionIntent) if i.pool not in made and i.step in ("applying", "compensating", "failed"))
    return tuple(sorted(found, key=lambda i: i.pool))


def given_up(pool: PoolId, code: str, text: str, details: tuple[str, ...]) -> FleetctlError:
    """Return the error with which a pool's run ends.

    Args:
        details: what stands, and how to remove it.
    """
    if code == "provision.interrupted":
        return Interrupted(code, f"provisioning {pool}: {text}", hint="To go on, run: fleetctl provision", details=details)
    hint = "Mend the cause, then run: fleetctl provision"
    if "no space left on device" in text.lower():
        code, hint = "provision.disk_full", "Free some space, then run: fleetctl provision"
    return ProvisionFailed(code, f"provisioning {pool} failed: {text}", hint=hint, details=details)


def no_place(pool: PoolId, last: Trouble, tried: int, details: tuple[str, ...]) -> CapacityUnavailable:
    """Return the error of a pool that no allowed place took.

    Args:
        last: the refusal that ended it; tried: places; details: every try, what was not tried, what stands.
    """
    if last.action is Action.RAISE_QUOTA:
        gap = last.quota
        ask = f" Raise {gap.name or 'it'} to at least {gap.least}." if gap is not None and gap.least > 0 else ""
        return CapacityUnavailable(
            "capacity.quota",
            f"pool {pool}: the quota of the subscription does not allow it.{ask}",
            hint="Ask for more quota at the cloud (days, not minutes), then run: fleetctl provision",
            details=details,
        )
    blamed = ", ".join(f"pool.{pool}.{name}" for name in last.constraints)
    way = (f"the cloud blames {blamed}: change these to give way; fleetctl gives up none by itself",) if blamed else ()
    return CapacityUnavailable(
        "capacity.exhausted",
        f"pool {pool}: every allowed place refused ({tried} tried); no machine was left behind.",
        hint="Reserve capacity, allow more places, or wait. Run: fleetctl capacity",
        details=(*way, *details),
    )


def all_of(failed: Sequence[tuple[PoolId, FleetctlError]]) -> FleetctlError:
    """Return the one error of the pools that failed, at least one."""
    if len({(e.code, e.message) for _, e in failed}) == 1:  # such as no Terraform to run
        return failed[0][1]
    return ProvisionFailed(
        "provision.several",
        f"{len(failed)} pools failed.",
        hint="Mend the causes, then run: fleetctl provision",
        details=_lines(failed),
    )


def stopped(pool: PoolId, e: Interrupted | KeyboardInterrupt, failed: Sequence[tuple[PoolId, FleetctlError]]) -> Interrupted:
    """Return the error of a run that was stopped at a pool after others had failed."""
    details = e.details if isinstance(e, Interrupted) else ()
    said = e.message if isinstance(e, Interrupted) else f"provisioning {pool}: stopped"
    before = ("failed before it was stopped:", *(f"  {line}" for line in _lines(failed)))
    return Interrupted("provision.interrupted", said, hint="To go on, run: fleetctl provision", details=(*details, *before))


def _lines(failed: Sequence[tuple[PoolId, FleetctlError]]) -> tuple[str, ...]:
    return tuple(line for pool, e in failed for line in (f"{pool}: {e}", *(f"  {d}" for d in e.details)))


def guarded(spec: PoolSpec, e: ProvisionFailed) -> tuple[ProvisionPlan, tuple[Diagnostic, ...]]:
    """Return what is shown of a pool whose plan prevent_destroy stopped, where it is only looked at: no plan, and why there is none."""
    shown = ProvisionPlan(
        pools=(spec.pool,), path="", digest=Sha256(""), changes=(), state_lineage="", state_serial=0, stack=spec.stack, tool=""
    )
    return shown, (Diagnostic(severity="error", code=e.code, text=e.message, path=spec.pool),)


def explained(e: ProvisionFailed) -> FleetctlError:
    """Return a plan's failure under the code of its cause, where the cause is known."""
    said = "\n".join((e.message, *e.details))
    low = said.lower()
    if "no space left on device" in low:
        return ProvisionFailed(
            "provision.disk_full", f"the disk is full: {e.message}", hint="Free some space, then run: fleetctl provision"
        )
    if "provider" in low and (
        "failed to query available provider packages" in low or "could not retrieve the list of available versions" in low
    ):
        hint = "Allow the registry, or name a mirror in TF_CLI_CONFIG_FILE. Run: fleetctl doctor"
        return ProvisionFailed("provision.provider_missing", f"a Terraform provider cannot be had: {e.message}", hint=hint)
    if is_guard(e):
        text = f"the Terraform plan would destroy a host that serves, and prevent_destroy stands in its way: {e.message}"
        return ProvisionFailed("provision.refused", text, hint="Look at it: fleetctl provision --dry-run", details=e.details)
    words = ("could not acquire access token", "no valid credential sources", "building account")
    if any(w in low for w in words) or classify(said).action is Action.FIX_ACCESS:
        return CredentialsMissing(
            "credentials.refused", f"the cloud's credentials are missing or refused: {e.message}", hint="Run: fleetctl doctor"
        )
    return e
