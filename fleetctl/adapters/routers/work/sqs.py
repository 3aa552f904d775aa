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
from typing import Any, Literal

from fleetctl.adapters.routers.marks import read_mark, read_token
from fleetctl.adapters.routers.work.board import Posted
from fleetctl.adapters.routers.work.ledger import Ledger
from fleetctl.domain.evidence import Arm
from fleetctl.domain.ids import CellId
from fleetctl.domain.split import Served
from fleetctl.domain.units import FULL_BP, Instant
from fleetctl.errors import TrafficNotApplied

TAG, TOKEN_TAG = "fleetctl:split", "fleetctl:token"
LOOK_S = 1.0
"""How old a consumer's knowledge of the split may be when it begins a message. AWS answers few such calls a second for a whole account
(5, by its developer guide): a process with many consumers shares one board."""
WAIT_S = 1
"""Longest wait for a message: after it the split is looked at again."""


class SqsBoard:
    """The split of one queue per cell, in the queue's tag.

    Args:
        client: of SQS; urls: queue per cell; count: counts what consumers began, by their results.
    """

    compares: Literal["target", "single_writer"] = "single_writer"

    def __init__(self, client: Any, urls: dict[CellId, str], count: Callable[[CellId, Instant], Served]) -> None:
        self._client, self._urls, self._count = client, dict(urls), count

    def read(self, c: CellId) -> Posted:
        """Return what stands. Raises TrafficNotApplied (traffic.router_down, traffic.unknown_cell)."""
        url = self._url(c)
        with _translated(url):
            tags = self._client.list_queue_tags(QueueUrl=url).get("Tags") or {}
        bp, _, mark = str(tags.get(TAG, "")).partition("/")
        share = int(bp) if bp.isascii() and bp.isdigit() and int(bp) <= FULL_BP else 0
        return Posted(bp=share, mark=replace(read_mark(mark), token=read_token(str(tags.get(TOKEN_TAG, "")))))

    def post(self, c: CellId, floor: int, new: Posted) -> bool:
        """Write it where the token that stands is `floor`, read right before."""
        if self.read(c).mark.token != floor:
            return False
        url = self._url(c)
        with _translated(url):
            self._client.tag_queue(QueueUrl=url, Tags={TAG: f"{new.bp}/{new.mark}"})
        return True

    def fence(self, c: CellId, floor: int, token: int) -> bool:
        """Write the token alone where the one that stands is `floor`, read right before."""
        if self.read(c).mark.token != floor:
            return False
        url = self._url(c)
        with _translated(url):
            self._client.tag_queue(QueueUrl=url, Tags={TOKEN_TAG: str(token)})
        return True

    def taken(self, c: CellId, since: Instant) -> Served:
        """Count what consumers began since then, by the side that did."""
        return self._count(c, since)

    def open_jobs(self, c: CellId, *, on_target: bool) -> int:
        """Return all messages in flight: the queue does not tell whose they are."""
        url = self._url(c)
        with _translated(url):
            found = self._client.get_queue_attributes(QueueUrl=url, AttributeNames=["ApproximateNumberOfMessagesNotVisible"])
        return int(found["Attributes"]["ApproximateNumberOfMessagesNotVisible"])

    def _url(self, c: CellId) -> str:
        if c not in self._urls:
            raise TrafficNotApplied("traffic.unknown_cell", f"there is no queue of cell {c}.", hint="Run: fleetctl inventory")
        return self._urls[c]


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
    tries: int
    at: Instant


class SqsConsumer:
    """One consumer of one side.

    Args:
        board: the split; client, url: of the queue; index: of this consumer from 0; of: consumers of its side.
        results: what came of each message, shared by all consumers: SQS gives a message again whose consumer died, so a result counts once
            by the message's id, and one that was tried `most_tries` times in vain counts once as a failure. None: you keep results.
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
        """Return a message to work at, None where there is none or this side is closed."""
        if not self.is_open():
            return None
        with _translated(self._url):
            found = self._client.receive_message(
                QueueUrl=self._url, MaxNumberOfMessages=1, WaitTimeSeconds=WAIT_S, AttributeNames=["ApproximateReceiveCount"]
            ).get("Messages", [])
        if not found:
            return None
        one = found[0]
        tries = int(one.get("Attributes", {}).get("ApproximateReceiveCount", 1))
        message = Message(id=one["MessageId"], body=one["Body"], receipt=one["ReceiptHandle"], tries=tries, at=datetime.now(UTC))
        if self._is_over(message):
            return None
        is_open = False
        try:
            is_open = self.is_open()
        finally:
            if not is_open:
                with _translated(self._url):
                    self._client.change_message_visibility(QueueUrl=self._url, ReceiptHandle=one["ReceiptHandle"], VisibilityTimeout=0)
        return message if is_open else None

    def done(self, message: Message, *, ok: bool = True) -> bool:
        """Keep the result, then delete the message; False where its result was known already. Raises TrafficNotApplied."""
        counted = self._results is None or self._results.note(self._cell, message.id, self._arm, ok=ok, taken=message.at)
        self._delete(message)
        return counted

    def _is_over(self, message: Message) -> bool:
        """Delete what is known already (its consumer died before it could), or was tried too often."""
        if self._results is None:
            return False
        if not self._results.is_known(self._cell, message.id):
            if message.tries <= self._most_tries:
                return False
            self._results.note(self._cell, message.id, self._arm, ok=False, taken=message.at)
        self._delete(message)
        return True

    def _delete(self, message: Message) -> None:
        with _translated(self._url):
            self._client.delete_message(QueueUrl=self._url, ReceiptHandle=message.receipt)


@contextmanager
def _translated(url: str) -> Iterator[None]:
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except (BotoCoreError, ClientError, LookupError, TypeError, ValueError, AttributeError) as e:
        text = f"the queue {url} cannot be asked: {' '.join(str(e).split())[:200].rstrip('.')}."
        raise TrafficNotApplied("traffic.router_down", text, hint="Run: fleetctl doctor") from e
