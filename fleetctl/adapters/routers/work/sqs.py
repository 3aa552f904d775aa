"""Traffic, adapter layer: the split of an SQS queue by its consumers, which ask before they take. Never runs a job.

SQS hands a message to whoever asks, so the share is one of consumers: of `n` on each side, so many of the target's may take. It stands in
a tag of the queue, where nothing compares: a single writer. A message that comes after a side was closed goes back at once, untouched.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Literal, TypeVar

from fleetctl.adapters.deadline import Deadline, within
from fleetctl.adapters.routers.marks import read_mark, read_token
from fleetctl.adapters.routers.open_writes import OpenWrites, ended
from fleetctl.adapters.routers.work.board import Posted
from fleetctl.adapters.routers.work.ledger import Ledger
from fleetctl.domain.evidence import Arm
from fleetctl.domain.ids import CellId
from fleetctl.domain.split import Served
from fleetctl.domain.units import FULL_BP, Instant
from fleetctl.errors import FleetctlError, TrafficNotApplied

T = TypeVar("T")

TAG, TOKEN_TAG = "fleetctl:split", "fleetctl:token"
LOOK_S = 1.0
"""How old a consumer's knowledge of the split may be when it begins a message. AWS answers few such calls a second for a whole account
(5, by its developer guide): a process with many consumers shares one board."""
WAIT_S = 1
"""Longest wait for a message: after it the split is looked at again."""


class SqsBoard:
    """The split of one queue per cell, in the queue's tags.

    Args:
        client: gives that of SQS, called within the limit of a call; urls: queue per cell; count: counts what consumers began, by
            their results.
    """

    compares: Literal["target", "single_writer"] = "single_writer"

    def __init__(self, client: Callable[[], Any], urls: dict[CellId, str], count: Callable[[CellId, Instant], Served]) -> None:
        self._client, self._urls, self._count = client, dict(urls), count
        self._seen: dict[CellId, frozenset[str]] = {}
        self._open = OpenWrites()

    def read(self, c: CellId, deadline: Deadline | None = None) -> Posted:
        """Return what stands. Raises TrafficNotApplied (traffic.router_down, traffic.unknown_cell, traffic.not_shown)."""
        url = self._url(c)
        found = self._ask(url, deadline or Deadline(), lambda client: dict(client.list_queue_tags(QueueUrl=url).get("Tags") or {}))
        bp, _, mark = str(found.get(TAG, "")).partition("/")
        self._check(c, url, found, read_mark(mark).token)
        share = int(bp) if bp.isascii() and bp.isdigit() and int(bp) <= FULL_BP else 0
        posted = read_mark(mark)
        floor = max(posted.token, read_token(str(found.get(TOKEN_TAG, ""))))  # a fence that came late lowers no floor
        return Posted(bp=share, mark=replace(posted, token=floor))

    def post(self, c: CellId, floor: int, new: Posted, deadline: Deadline) -> bool:
        """Write it where the token that stands is `floor`, read right before; a change of before does not come after it."""
        before = self._open.of(self._url(c))
        if not self._write(c, floor, _tag(new), deadline, lambda: self._late(c, floor)):
            return False
        if before:
            ended(before, deadline, f"queue {self._url(c)}: a change")
            found = self.read(c, deadline)
            return found.mark.token == floor and (found == new or self._write(c, floor, _tag(new), deadline, lambda: self._late(c, floor)))
        return True

    def fence(self, c: CellId, floor: int, token: int, deadline: Deadline) -> bool:
        """Write the token alone where the one that stands is `floor`, read right before."""
        return self._write(c, floor, {TOKEN_TAG: str(token)}, deadline)

    def taken(self, c: CellId, since: Instant, deadline: Deadline) -> Served:
        """Count what consumers began since then, by the side that did. Raises TrafficNotApplied (traffic.not_shown)."""
        try:
            return within(deadline, lambda: self._count(c, since), f"results of {c}")
        except TimeoutError as late:
            raise TrafficNotApplied("traffic.not_shown", f"queue {self._url(c)}: what was begun is not known: {late}.") from late

    def open_jobs(self, c: CellId, deadline: Deadline, *, on_target: bool) -> int:
        """Return all messages in flight: the queue does not tell whose they are."""
        url, name = self._url(c), "ApproximateNumberOfMessagesNotVisible"
        return self._ask(
            url, deadline, lambda client: int(client.get_queue_attributes(QueueUrl=url, AttributeNames=[name])["Attributes"][name])
        )

    def _late(self, c: CellId, token: int) -> None:
        """Take a change back that came when nobody waited for it any more, where somebody had fenced us off: the last word is home."""
        deadline = Deadline()
        found = self.read(c, deadline)
        if found.mark.token > token and found.bp > 0:
            self._write(c, found.mark.token, _tag(replace(found, bp=0)), deadline)

    def _write(self, c: CellId, floor: int, tags: dict[str, str], deadline: Deadline, late: Callable[[], None] = lambda: None) -> bool:
        if self.read(c, deadline).mark.token != floor:
            return False
        url = self._url(c)

        def write(client: Any) -> None:
            if deadline.left_s() <= 0:  # its client took that long to make: nobody waits for the write any more
                raise TimeoutError("no time is left")
            self._open.write(url, deadline, lambda: client.tag_queue(QueueUrl=url, Tags=tags), late)

        self._ask(url, deadline, write)
        return True

    def _check(self, c: CellId, url: str, found: dict[str, Any], set_by: int) -> None:
        """Refuse an answer without what it had before, or with a split that was set and no token: it is half, not a share of 0."""
        has = frozenset({TAG, TOKEN_TAG} & found.keys())
        gone = self._seen.get(c, frozenset()) - has or ({TOKEN_TAG} - has if set_by else frozenset())
        if gone:
            text = f"the queue {url} shows no tag {' and '.join(sorted(gone))}, which it had."
            raise TrafficNotApplied("traffic.not_shown", text, hint="Put it back: aws sqs tag-queue")
        self._seen[c] = has

    def _ask(self, url: str, deadline: Deadline, action: Callable[[Any], T]) -> T:
        with _translated(url):
            return within(deadline, lambda: action(self._client()), url)

    def _url(self, c: CellId) -> str:
        if c not in self._urls:
            raise TrafficNotApplied("traffic.unknown_cell", f"there is no queue of cell {c}.", hint="Run: fleetctl inventory")
        return self._urls[c]


def _tag(posted: Posted) -> dict[str, str]:
    return {TAG: f"{posted.bp}/{posted.mark}"}


def may_take(posted: Posted, arm: Arm, index: int, of: int) -> bool:
    """Tell whether consumer `index` (from 0) of `of` on a side may take a message; the target's never exceed the share."""
    open_on_target = posted.bp * of // FULL_BP
    return index < (open_on_target if arm == "canary" else of - open_on_target)


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A message that a consumer holds until it is done or its visibility time-out is over."""

    id: str
    body: str
    receipt: str
    at: Instant


class SqsConsumer:
    """One consumer of one side.

    Args:
        board: the split; client, url: of the queue; index: of this consumer from 0; of: consumers of its side.
        results: what came of each message, shared by all consumers: SQS gives a message again whose consumer died, so a result counts once
            by the message's id, and one that was handed out `most_tries` times in vain counts once, as a failure of the side that had it
            last. What went back untouched was not tried, however often SQS gave it. None: you keep results.
    """

    def __init__(
        self,
        board: SqsBoard,
        client: Any,
        url: str,
        cell: CellId,
        arm: Arm,
        *,
        index: int,
        of: int,
        results: Ledger | None = None,
        most_tries: int = 3,
    ) -> None:
        self._results, self._most_tries = results, most_tries
        self._board, self._client, self._url = board, client, url
        self._cell, self._arm, self._index, self._of = cell, arm, index, of
        self._posted, self._looked = Posted(), -LOOK_S

    def is_open(self) -> bool:
        """Tell whether this consumer may take; what it knows is at most LOOK_S old."""
        if time.monotonic() - self._looked >= LOOK_S:
            self._posted, self._looked = self._board.read(self._cell), time.monotonic()
        return may_take(self._posted, self._arm, self._index, self._of)

    def take(self) -> Message | None:
        """Return a message to work at, None where there is none or this side is closed. Raises TrafficNotApplied."""
        if not self.is_open():
            return None
        found = self._ask(
            lambda: self._client.receive_message(QueueUrl=self._url, MaxNumberOfMessages=1, WaitTimeSeconds=WAIT_S).get("Messages") or []
        )
        if not found:
            return None
        with _translated(self._url):
            id_, body, receipt = found[0]["MessageId"], found[0]["Body"], found[0]["ReceiptHandle"]
        is_done = False
        try:
            is_done = self._is_over(id_, receipt)
            if is_done or not self.is_open():
                return None
            message = Message(id=id_, body=body, receipt=receipt, at=datetime.now(UTC))
            if self._results is not None:
                self._results.hand(self._cell, id_, self._arm, message.at)
            is_done = True
            return message
        finally:
            if not is_done:
                self._ask(lambda: self._client.change_message_visibility(QueueUrl=self._url, ReceiptHandle=receipt, VisibilityTimeout=0))

    def done(self, message: Message, *, ok: bool = True) -> bool:
        """Keep the result, then delete the message; False where its result was known already. Raises TrafficNotApplied."""
        counted = self._results is None or self._results.note(self._cell, message.id, self._arm, ok=ok, taken=message.at)
        self._delete(message.receipt)
        return counted

    def _is_over(self, id_: str, receipt: str) -> bool:
        """Delete what is known already (its consumer died before it could), or was handed out too often."""
        if self._results is None:
            return False
        if not self._results.is_known(self._cell, id_):
            last = self._results.handed(self._cell, id_)
            if last is None or last.tries < self._most_tries:
                return False
            self._results.note(self._cell, id_, last.arm, ok=False, taken=last.taken)
        self._delete(receipt)
        return True

    def _delete(self, receipt: str) -> None:
        self._ask(lambda: self._client.delete_message(QueueUrl=self._url, ReceiptHandle=receipt))

    def _ask(self, action: Callable[[], T]) -> T:
        with _translated(self._url):
            return within(Deadline(), action, f"{self._arm} consumer {self._index} of {self._url}")


@contextmanager
def _translated(url: str) -> Iterator[None]:
    from botocore.exceptions import BotoCoreError, ClientError
    from botocore.parsers import ResponseParserError

    try:
        yield
    except FleetctlError as e:
        raise TrafficNotApplied("traffic.router_down", f"the queue {url} cannot be asked: {e.message}", hint=e.hint) from e
    except (BotoCoreError, ClientError, ResponseParserError, TimeoutError, LookupError, TypeError, ValueError, AttributeError) as e:
        text = f"the queue {url} cannot be asked: {' '.join(str(e).split())[:200].rstrip('.')}."
        raise TrafficNotApplied("traffic.router_down", text, hint="Run: fleetctl doctor") from e
