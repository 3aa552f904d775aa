"""Provision: every refusal, in each of its three shapes, leads to the one action."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetctl.planning.provision_codes import PHRASES, ROWS, Action
from fleetctl.planning.provision_errors import UNKNOWN, classify
from tests.cases import provision_refusals as corpus

ALL = (*corpus.AZURE, *corpus.AWS)
CODED = {"ReservationCapacityExceeded", "Unsupported"}
"""Their messages vary too much to be known by a sentence; the code is always printed with them."""
SHAPES = {"request": corpus.as_request, "operation": corpus.as_operation, "diagnostic": corpus.as_diagnostic}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("refusal", ALL, ids=lambda r: r.code)
def test_each_shape_leads_to_the_one_action(refusal: corpus.Refusal, shape: str) -> None:
    trouble = classify(SHAPES[shape](refusal))
    assert (trouble.code, trouble.action, trouble.leaves) == (refusal.code, refusal.action, refusal.leaves)
    assert trouble.cloud == refusal.cloud
    assert trouble.text


def test_the_corpus_holds_every_code_of_the_research_table() -> None:
    named = {r.code for r in ALL}
    assert {
        "SkuNotAvailable",
        "AllocationFailed",
        "ZonalAllocationFailed",
        "OverconstrainedAllocationRequest",
        "OverconstrainedZonalAllocationRequest",
        "OperationNotAllowed",
        "QuotaExceeded",
        "VMMarketplaceInvalidInput",
        "InsufficientInstanceCapacity",
        "ReservationCapacityExceeded",
        "VcpuLimitExceeded",
        "MaxSpotInstanceCountExceeded",
        "UnfulfillableCapacity",
        "RequestLimitExceeded",
    } <= named


@pytest.mark.parametrize("row", ROWS, ids=lambda r: r.code)
def test_every_row_is_found_by_its_code(row: object) -> None:
    from fleetctl.planning.provision_codes import Row

    assert isinstance(row, Row)
    needed = f" {row.needs[0]}" if row.needs else ""
    trouble = classify({"error": {"code": row.code, "message": f"no{needed}"}})
    assert (trouble.code, trouble.action) == (row.code, row.action)


def test_codes_are_unique_and_phrases_name_known_ones() -> None:
    codes = [row.code for row in ROWS]
    assert len(codes) == len({c.lower() for c in codes})
    assert {code for _, code in PHRASES} <= set(codes)


@pytest.mark.parametrize(
    "refusal",
    [r for r in ALL if r.code in {code for _, code in PHRASES} - CODED],
    ids=lambda r: r.code,
)
def test_an_empty_code_is_known_by_its_sentence(refusal: corpus.Refusal) -> None:
    trouble = classify(f'polling failed: Status: "Failed"\nCode: ""\nMessage: "{refusal.message}"')
    assert trouble.action is refusal.action


def test_quota_inside_a_wrapper_beats_the_wrapper_and_names_the_numbers() -> None:
    inner = corpus.as_request(next(r for r in corpus.AZURE if r.code == "OperationNotAllowed"))
    trouble = classify({"error": {"code": "QuotaExceeded", "message": "Preflight validation failed", "details": [inner]}})
    assert trouble.code == "OperationNotAllowed"
    assert trouble.quota is not None
    assert (trouble.quota.name, trouble.quota.limit, trouble.quota.used, trouble.quota.required, trouble.quota.least) == (
        "standardNDISv5MI300XFamily Cores",
        96,
        96,
        96,
        192,
    )
    assert trouble.block == timedelta(minutes=10)


def test_a_quota_of_zero_blocks_an_hour_and_spot_has_its_own_bucket() -> None:
    trouble = classify({"error": {"code": "OperationNotAllowed", "message": corpus.ZERO_QUOTA}}, priority="spot")
    assert (trouble.block, trouble.scope, trouble.action) == (timedelta(hours=1), "spot", Action.RAISE_QUOTA)


def test_operation_not_allowed_without_a_quota_is_not_a_quota_error() -> None:
    trouble = classify({"error": {"code": "OperationNotAllowed", "message": "The VM is being deleted."}})
    assert (trouble.code, trouble.action) == (UNKNOWN, Action.ASK)


def test_a_size_that_is_not_to_be_had_stays_closed_a_day_on_demand_and_an_hour_for_spot() -> None:
    body = corpus.as_request(corpus.AZURE[0])
    assert classify(body).block == timedelta(hours=23)
    assert classify(body, priority="spot").block == timedelta(hours=1)


def test_overconstrained_names_the_settings_by_which_an_owner_can_give_way() -> None:
    trouble = classify(corpus.as_operation(next(r for r in corpus.AZURE if r.code == "OverconstrainedAllocationRequest")))
    assert trouble.constraints == ("os_disk", "sizes")


@pytest.mark.parametrize(
    ("status", "after", "action", "wait"),
    [
        (429, 12.0, Action.WAIT_RETRY, timedelta(seconds=12)),
        (429, None, Action.WAIT_RETRY, timedelta(seconds=60)),
        (401, None, Action.FIX_ACCESS, timedelta()),
        (403, None, Action.FIX_ACCESS, timedelta()),
        (500, None, Action.ASK, timedelta()),
    ],
)
def test_the_status_speaks_where_no_code_does(status: int, after: float | None, action: Action, wait: timedelta) -> None:
    trouble = classify({}, status=status, retry_after_s=after)
    assert (trouble.action, trouble.wait) == (action, wait)


def test_the_wait_is_read_from_the_text() -> None:
    trouble = classify(corpus.as_diagnostic(next(r for r in corpus.AZURE if r.code == "TooManyRequests")))
    assert trouble.wait == timedelta(seconds=17)


@pytest.mark.parametrize(
    "said",
    [
        "Unsupported argument: an argument named x is not expected here",
        'module.amd.x\nUnsupported attribute\nThis object has no argument, nested block, or exported attribute named "y".',
        {"error": {"code": "OperationNotAllowed", "message": "Unsupported disk controller for this size."}},
        "Throttling of disks is on for this size",
    ],
)
def test_a_common_word_is_no_code(said: object) -> None:
    assert (classify(said).code, classify(said).action) == (UNKNOWN, Action.ASK)


@pytest.mark.parametrize("code", [r.code for r in ROWS if r.code[1:].islower()])
def test_a_code_that_is_a_common_word_is_known_where_it_stands_as_a_code(code: str) -> None:
    for said in (
        f"api error {code}: no",
        f"{code}: no",
        f'Status: "{code}"',
        f"<Error><Code> {code} </Code></Error>",
        {"Error": {"Code": code}},
        '{"ErrorCode":"' + code + '"}',
    ):
        assert classify(said).code == code


def test_json_in_a_message_is_opened() -> None:
    import json

    body = {"error": {"code": "DeploymentFailed", "message": json.dumps({"error": {"code": "ZonalAllocationFailed", "message": "full"}})}}
    assert classify(body).code == "ZonalAllocationFailed"


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(), lambda s: st.lists(s) | st.dictionaries(st.text(), s), max_leaves=20
    )
)
def test_anything_at_all_gives_one_action_and_one_printable_line(answer: object) -> None:
    trouble = classify(answer)
    assert isinstance(trouble.action, Action)
    assert trouble.text.isprintable()
    assert len(trouble.text) <= 400
