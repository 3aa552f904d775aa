"""Composition root, comparing a cell's two sides, and its source with itself. Never decides; imports an adapter when asked for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from fleetctl.wiring.traffic import Traffic

if TYPE_CHECKING:
    from fleetctl.domain.evidence import Arm
    from fleetctl.domain.identity import ArmsIdentity, ContractReport, ContractResult
    from fleetctl.domain.ids import CellId
    from fleetctl.domain.quality import QualityReport
    from fleetctl.ports.traffic import SampleSource
    from fleetctl.usecases.calibrate import CalibratePorts
    from fleetctl.usecases.contract import ContractArm


class Compare(Traffic):
    """Samples of the source, the serving contract and the quality gate of one workspace."""

    def calibrate_ports(self) -> CalibratePorts:
        """Return all that calibration touches."""
        from fleetctl.usecases.calibrate import CalibratePorts

        return CalibratePorts(samples=self.samples_of, records=self.store, clock=self.clock)

    def samples_of(self, c: CellId) -> SampleSource:
        """Return what gives a cell's requests one by one."""
        from fleetctl.adapters.routers.samples import RouterLogSamples

        return RouterLogSamples(Path(self._connection_of(c).settings["log_folder"]))

    def arms_of(self, c: CellId) -> ArmsIdentity:
        """Return what both arms serve now. Raises EvidenceUnavailable (evidence.identity) where one does not answer."""
        from fleetctl.errors import EvidenceUnavailable

        found = self.identity_of(c).arms(c)
        if found is None:
            text = f"an arm of {c} does not say what it serves."
            raise EvidenceUnavailable("evidence.identity", text, hint="Start both sides, then run: fleetctl doctor")
        return found

    def run_contract(self, c: CellId, *, say: Callable[[ContractResult], None] = lambda _: None) -> ContractReport:
        """Make the serving contract's calls on both arms of a cell, through its router."""
        from fleetctl.catalog.contract import load_contract
        from fleetctl.usecases.contract import run_contract

        arms = self.arms_of(c)
        sides = (self._contract_arm(c, "baseline", arms), self._contract_arm(c, "canary", arms))
        return run_contract(c, load_contract(), arms, *sides, self.clock, say=say)

    def _contract_arm(self, c: CellId, arm: Arm, arms: ArmsIdentity) -> ContractArm:
        from fleetctl.adapters.engines.contract import filled, run_call
        from fleetctl.usecases.contract import ContractArm

        api = self.arm_api(c, arm)
        identity = arms.baseline if arm == "baseline" else arms.canary
        declared = self.fleet.workload(self.fleet.cell(c).workload).model.context_tokens
        told = next((identity.told[k] for k in ("n_ctx", "max_model_len", "max_total_tokens") if k in identity.told), "")
        context = int(told) if told.isdigit() else declared
        return ContractArm(
            ask=lambda call, adapter: run_call(api, call, model=identity.model, adapter=adapter, context_tokens=context),
            expects=lambda call: filled(call, identity.model),
        )

    def run_quality(self, c: CellId, *, say: Callable[[int], None] = lambda _: None) -> tuple[QualityReport, ...]:
        """Force the shipped texts on both arms of a cell: the base model, then each adapter model by its own name."""
        from fleetctl.adapters.engines.forced import ForcedTexts
        from fleetctl.catalog.quality import quality_texts
        from fleetctl.domain.quality import QualitySpec
        from fleetctl.usecases.quality import judge_quality

        arms, spec = self.arms_of(c), QualitySpec()
        names = (arms.baseline.model, *(name for name, _ in arms.baseline.adapters))
        here, there = self.arm_api(c, "baseline"), self.arm_api(c, "canary")
        texts = quality_texts(spec.prefill_chunk)
        return tuple(judge_quality(texts, ForcedTexts(here, n), ForcedTexts(there, n), spec, self.clock, model=n, say=say) for n in names)
