"""Provision, adapters layer: the port Provisioner by Terraform, one state per pool. Never applies anything but a saved plan file."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from fleetctl.adapters.terraform import folder as files
from fleetctl.adapters.terraform.calls import FLAG, Answer, Calls
from fleetctl.adapters.terraform.modules import Backend, check_backend
from fleetctl.adapters.terraform.said import Complaint, Said, clean, read_lines
from fleetctl.adapters.terraform.shown import changes_of, drift_of, has_resources, hosts_of, ids_of, is_tainted, outputs_differ, state_of
from fleetctl.adapters.terraform.stacks import check_variables
from fleetctl.adapters.terraform.stream import Ended, follow
from fleetctl.adapters.terraform.tool import Tool, with_environment
from fleetctl.domain.ids import PoolId, Token, require_id
from fleetctl.domain.people import Diagnostic
from fleetctl.domain.pool import Host, PoolSpec
from fleetctl.domain.provision import Progress, Provisioned, ProvisionFailure, ProvisionPlan, ReleasePermit, ResourceChange
from fleetctl.errors import Interrupted, ProvisionFailed, ToolMissing
from fleetctl.planning.check_provision import is_guard

_CHANGES = 2
_LOCAL_STATE = "terraform.tfstate"
_IDLE = frozenset({("no-op",), ("read",)})


class TerraformProvisioner:
    """Makes the machines of one stack.

    Args:
        stack_folder: the stack's files; may be read-only.
        work_folder: gets one folder per pool (0700) with a copy of the stack, the state and the variables.
        stack: its name, as `Pool.provisioned_by` has it.
        variables: what the stack is given for a pool; written to a 0600 file, never to a command line.
        deadline_s: seconds after which a run is asked to stop, once, and waited for.
        backend: where states are kept; None for beside each pool's copy of the stack.
    """

    def __init__(
        self,
        stack_folder: Path,
        work_folder: Path,
        stack: str,
        variables: Callable[[PoolSpec], Mapping[str, object]],
        tool: Tool,
        *,
        deadline_s: float = 3600.0,
        backend: Backend | None = None,
    ) -> None:
        self._stack_folder = stack_folder
        self._work_folder = work_folder.absolute()
        self._stack = stack
        self._variables = variables
        self._tool = tool
        self._deadline_s = deadline_s
        self._backend = None if backend is None else check_backend(backend)

    def plan(self, pools: Sequence[PoolSpec], run: Path) -> ProvisionPlan:
        """Save one plan file per pool and a manifest that binds them, all 0600, in the run folder; nothing is changed.

        `path` is the manifest, `digest` that of its bytes; it holds the digest of each plan file.

        Raises:
            ProvisionFailed: provision.plan_failed, provision.locked, provision.timeout, provision.variables, provision.stack_missing,
                provision.stack; ToolMissing: tool.terraform_missing; ConfigInvalid: config.terraform_variable.
        """
        run = files.private_folder(run.absolute())
        saved: list[files.SavedPlan] = []
        changes: list[ResourceChange] = []
        outputs_change = False
        for spec in pools:
            if spec.stack not in ("", self._stack):
                raise ProvisionFailed(
                    "provision.stack", f"pool {spec.pool} is of stack {spec.stack!r}, not {self._stack!r}", hint="Run: fleetctl plan"
                )
            plan, shown = self._plan_pool(spec, run)
            saved.append(plan)
            changes.extend(changes_of(shown, spec.pool))
            outputs_change = outputs_change or outputs_differ(shown)
        manifest = run / files.manifest_name(tuple(spec.pool for spec in pools))
        digest = files.write_manifest(manifest, self._stack, self._tool.label, tuple(saved))
        return ProvisionPlan(
            pools=tuple(spec.pool for spec in pools),
            path=str(manifest),
            digest=digest,
            changes=tuple(changes),
            state_lineage=",".join(plan.lineage for plan in saved),
            state_serial=max((plan.serial for plan in saved), default=0),
            stack=self._stack,
            tool=self._tool.label,
            outputs_change=outputs_change,
        )

    def apply(self, p: ProvisionPlan, token: Token, on: Callable[[Progress], None]) -> Provisioned | ProvisionFailure:
        """Apply exactly the files of that plan, pool after pool, and stop at the first that fails; what was made is in its state.

        The state's lock keeps a second writer out and the plan's serial a late one, so the token needs no place in Terraform.

        Raises:
            ProvisionFailed: provision.changed (before anything is touched), provision.locked; PlanStale: provision.stale;
                ToolMissing: tool.terraform_missing.
        """
        files.require_tool(p.tool, self._tool.label)
        manifest = Path(p.path)
        plans = files.read_manifest(manifest, p.digest, p.pools)
        total = Said()
        seconds = 0.0
        for plan in plans:
            said, ended = self._run_file(plan.pool, manifest.parent / plan.file, manifest.parent / f"{plan.pool}.apply.jsonl", on)
            seconds += ended.seconds
            total.made.extend(f"{plan.pool}/{address}" if len(plans) > 1 else address for address in said.made)
            total.added, total.changed, total.destroyed = (
                total.added + said.added,
                total.changed + said.changed,
                total.destroyed + said.destroyed,
            )
            if ended.status != 0 or ended.why == "interrupted":
                return self._failure(plan.pool, said, ended, tuple(total.made))
        return Provisioned(added=total.added, changed=total.changed, destroyed=total.destroyed, seconds=seconds)

    def outputs(self, pool: PoolId) -> tuple[Host, ...]:
        """Return the pool's hosts in the order of the stack's output; () where there is no state, or the last apply did not finish.

        Raises:
            ProvisionFailed: provision.outputs_refused; ToolMissing: tool.terraform_missing.
        """
        folder = self._folder(pool)
        if not self._has_state(pool):
            return ()
        answer = self._calls(folder).run("output", json=FLAG, no_color=FLAG)
        if answer.status != 0:
            raise ProvisionFailed(
                "provision.outputs_refused", f"outputs of pool {pool} cannot be read: {_error_text(answer)}", hint="Run: fleetctl provision"
            )
        return hosts_of(answer.out, pool)

    def adopt(self, pool: PoolId, address: str, id_: str) -> None:
        """Import what exists already into the pool's state; nothing in the cloud is changed.

        Raises:
            ProvisionFailed: provision.adopt_failed, provision.locked; ToolMissing: tool.terraform_missing.
        """
        answer = self._calls(self._folder(pool)).run("import", address, id_, input=False, no_color=FLAG)
        if answer.status != 0:
            text = f"{id_} exists already and cannot be taken into the state of pool {pool}: {_error_text(answer)}"
            raise ProvisionFailed("provision.adopt_failed", text, hint="Remove or import it yourself, then run: fleetctl provision")

    def drift(self, pool: PoolId) -> tuple[Diagnostic, ...]:
        """Return one warning (provision.drift) per resource that differs from what was last planned; () for a pool that has none.

        Raises:
            ProvisionFailed: provision.plan_failed, provision.locked; ToolMissing: tool.terraform_missing.
        """
        folder = self._folder(pool)
        if not self._has_state(pool):
            return ()
        with files.scratch(folder, "drift") as file:
            try:
                if not self._save(pool, file):
                    return ()
            except ProvisionFailed as e:
                if not is_guard(e):
                    raise
                return (_drifted(pool, "Terraform would destroy a host, and prevent_destroy stands in its way"),)
            shown = self._show(pool, file)
        if not has_resources(shown):
            return ()
        told: dict[str, list[str]] = {}
        for c in drift_of(shown, pool):
            told.setdefault(c.address, []).append("was changed outside Terraform")
        for c in changes_of(shown, pool):
            if c.actions not in _IDLE:
                told.setdefault(c.address, []).append(f"Terraform would {' and '.join(c.actions)} it")
        return tuple(_drifted(address, "; ".join(what)) for address, what in told.items())

    def destroy(self, pool: PoolId, permit: ReleasePermit) -> None:
        """Destroy all of a pool, held or not; a pool without a state is destroyed already.

        Raises:
            ProvisionFailed: provision.permit (of another pool, or without approvals), release.unplanned,
                provision.destroy_failed, provision.locked;
            Interrupted: provision.interrupted; ToolMissing: tool.terraform_missing.
        """
        if permit.pool != pool or not permit.approvals:
            raise ProvisionFailed(
                "provision.permit", f"the permit does not allow destroying pool {pool}; nothing was changed", hint="Run: fleetctl release"
            )
        folder = self._folder(pool)
        if not self._has_state(pool):
            return
        if not files.variables_file(folder, pool).exists():  # made up from the fleet file they might name another region than it is in
            text = f"this workspace never planned pool {pool}: the settings with which it was made are not known here; nothing was changed."
            own = files.variables_file(folder, pool)
            hint = f"In the workspace that made it, run: fleetctl release {pool}. Where that is lost, write the variables to {own}"
            raise ProvisionFailed("release.unplanned", text, hint=hint)
        files.copy_stack(self._stack_folder, folder, pool, guarded=False, backend=self._backend)
        self._init(pool)
        with files.scratch(folder, "destroy") as file:
            if self._save(pool, file, destroy=FLAG):
                self._refuse_others(pool, file)
                said, ended = self._run_file(pool, file, folder / "destroy.jsonl", lambda _: None, permit=pool)
                if ended.status != 0:
                    failed = self._failure(pool, said, ended, ())
                    if failed.code == "provision.interrupted":
                        raise Interrupted(failed.code, failed.text, hint=f"To go on, run: fleetctl release {pool}")
                    code = "provision.destroy_failed" if failed.code == "provision.apply_failed" else failed.code
                    raise ProvisionFailed(code, failed.text, hint="Mend the cause, then run the same command again.")

    def _refuse_others(self, pool: PoolId, file: Path) -> None:
        """Refuse to destroy what carries another pool's tag, however it came into this pool's state: the permit is for one pool."""
        taken = [c for c in changes_of(self._show(pool, file), pool) if c.actions not in _IDLE and c.pool not in (None, pool)]
        if taken:
            text = f"destroying pool {pool} would take {taken[0].address}, which is of pool {taken[0].pool}; nothing was changed."
            hint = "Move it to that pool's own state (terraform state mv), then run the same command again."
            raise ProvisionFailed("provision.refused", text, hint=hint, details=tuple(f"{c.address}: pool {c.pool}" for c in taken))

    def ids(self, pool: PoolId) -> frozenset[str]:
        """Return the cloud's ids, lower case, of everything that the pool's state holds; empty where there is no state.

        Raises:
            ProvisionFailed: provision.plan_failed where the state cannot be read; ToolMissing: tool.terraform_missing.
        """
        if not self._has_state(pool):
            return frozenset()
        pulled = self._calls(self._folder(pool)).run("state pull")
        if pulled.status != 0:
            raise _plan_failed(pool, "reading the state", pulled)
        return ids_of(pulled.out)

    def _has_state(self, pool: PoolId) -> bool:
        """Tell whether there can be a state, and make it readable: a run may have died, or failed, before it was."""
        folder = self._folder(pool)
        if self._backend is None:
            if not (folder / _LOCAL_STATE).exists():
                return False
        elif not folder.is_dir():
            files.copy_stack(self._stack_folder, folder, pool, backend=self._backend)
        self._init(pool)
        return True

    def _folder(self, pool: PoolId) -> Path:
        return self._work_folder / require_id(pool)

    def _calls(self, folder: Path) -> Calls:
        return Calls(self._tool, folder, deadline_s=self._deadline_s)

    def _plan_pool(self, spec: PoolSpec, run: Path) -> tuple[files.SavedPlan, str]:
        pool, folder = spec.pool, self._folder(spec.pool)
        files.copy_stack(self._stack_folder, folder, pool, guarded=spec.hold or spec.serves, backend=self._backend)
        files.remove_scratch(folder)
        variables = self._variables(spec)
        check_variables(self._stack_folder, self._stack, pool, variables)
        files.write_variables(folder, pool, variables)
        self._init(pool)
        file = run / files.plan_name(pool)
        files.empty_private(file)
        try:
            self._save(pool, file)
        except ProvisionFailed as e:
            if spec.hold or not is_guard(e) or not self._tainted(pool):
                raise
            # A host that never came up may be made anew; what else the plan would do is for the check to judge.
            files.copy_stack(self._stack_folder, folder, pool, guarded=False, backend=self._backend)
            self._init(pool)
            self._save(pool, file)
        shown = self._show(pool, file)
        pulled = self._calls(folder).run("state pull")
        if pulled.status != 0:
            raise _plan_failed(pool, "reading the state", pulled)
        lineage, serial = state_of(pulled.out)
        return files.SavedPlan(pool=pool, file=file.name, sha256=files.file_digest(file), lineage=lineage, serial=serial), shown

    def _tainted(self, pool: PoolId) -> bool:
        pulled = self._calls(self._folder(pool)).run("state pull")
        return pulled.status == 0 and is_tainted(pulled.out)

    def _init(self, pool: PoolId) -> None:
        folder = self._folder(pool)
        if files.is_ready(folder, self._tool.label):
            return
        answer = self._calls(folder).run("init", input=False, no_color=FLAG, **({} if self._backend is None else {"reconfigure": FLAG}))
        if answer.status != 0:
            raise _plan_failed(pool, "init", answer)
        files.mark_ready(folder, self._tool.label)

    def _save(self, pool: PoolId, file: Path, **options: object) -> bool:
        """Plan into `file`; tell whether anything would change."""
        answer = self._calls(self._folder(pool)).run(
            "plan", input=False, no_color=FLAG, json=FLAG, detailed_exitcode=FLAG, out=str(file), **options
        )
        if answer.status not in (0, _CHANGES):
            said = read_lines(answer.out)
            if not said.complaints:
                raise _plan_failed(pool, "plan", answer)
            raise said.error("provision.plan_failed", f"planning pool {pool}")
        file.chmod(0o600)
        return answer.status == _CHANGES

    def _show(self, pool: PoolId, file: Path) -> str:
        answer = self._calls(self._folder(pool)).run("show", str(file), json=FLAG, no_color=FLAG)
        if answer.status != 0:
            raise _plan_failed(pool, "show", answer)
        return answer.out

    def _run_file(self, pool: PoolId, file: Path, log: Path, on: Callable[[Progress], None], *, permit: str = "") -> tuple[Said, Ended]:
        folder = self._folder(pool)
        said = Said()

        def take(line: Mapping[str, object]) -> None:
            progress = said.take(line)
            if progress is not None:
                on(progress)

        try:
            ended = follow(
                [*self._tool.argv, "apply", "-json", "-input=false", str(file)],
                folder=folder,
                environ=with_environment(os.environ, folder / ".terraform", permit),
                log=log,
                on_line=take,
                deadline_s=self._deadline_s,
            )
        except FileNotFoundError as e:
            if folder.is_dir():
                raise ToolMissing(
                    "tool.terraform_missing", f"{self._tool.argv[0]} cannot be run any more", hint="Install it again. Run: fleetctl doctor"
                ) from e
            raise ProvisionFailed(
                "provision.changed", f"the folder of pool {pool} is gone since it was planned", hint="Run: fleetctl provision"
            ) from e
        if ended.status not in (0, None) and not said.complaints and not ended.why:
            text = clean(log.with_suffix(".err").read_text(errors="replace")[-2000:])
            return Said(complaints=[_complaint(text)], made=said.made), ended
        return said, ended

    def _failure(self, pool: PoolId, said: Said, ended: Ended, made: tuple[str, ...]) -> ProvisionFailure:
        what = f"applying pool {pool}"
        if ended.status is None:
            text = f"{what}: was asked to stop ({ended.why}), but process {ended.pid} still works and holds the state's lock"
            return ProvisionFailure(code=f"provision.{ended.why}", text=text, made=made, at_work=True)
        if ended.why == "interrupted":
            how = "was done before it could stop" if ended.status == 0 else "stopped"
            return ProvisionFailure(
                code="provision.interrupted", text=f"{what}: {how}; its state is written, the same command goes on", made=made
            )
        if ended.why == "timeout":
            text = f"{what}: stopped after {self._deadline_s:.0f} s, its state is written: {said.text}"
            return ProvisionFailure(code="provision.timeout", text=text, made=made, details=said.whole())
        error = said.error("provision.apply_failed", what)
        if error.code != "provision.apply_failed":
            raise error
        return ProvisionFailure(code=error.code, text=error.message, made=made, details=said.whole())


def _drifted(address: str, what: str) -> Diagnostic:
    return Diagnostic(severity="warning", code="provision.drift", text=f"{address}: {what}", path=address)


def _error_text(answer: Answer) -> str:
    return clean((answer.err or answer.out)[-2000:]) or f"exit status {answer.status}"


def _complaint(text: str) -> Complaint:
    return Complaint(summary=text or "Terraform gave no reason", detail="", address="")


def _plan_failed(pool: PoolId, step: str, answer: Answer) -> ProvisionFailed:
    return ProvisionFailed(
        "provision.plan_failed",
        f"planning pool {pool}: {step} failed: {_error_text(answer)}",
        hint="Mend the cause, then run: fleetctl provision",
    )
