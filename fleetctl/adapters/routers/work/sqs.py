"""Traffic, adapter layer: the split of an SQS queue by its consumers, which ask before they take. Never runs a job.

SQS hands a message to whoever asks, so the share is one of consumers: of those that both sides have, so many of each side may take. The
split and how many there are stand in tags of the queue, where nothing compares: a single writer. A message that comes after a side was
closed goes back at once, untouched. (By the message, as the ledger does it, each one that is not ours would go back too: SQS counts that as
a receive, and a redrive policy would take healthy messages away.)
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Literal, TypeVar

from fleetctl.adapters.deadline import Deadline, within
from fleetctl.adapters.routers.marks import read_mark, read_token
from fleetctl.adapters.routers.open_writes import OpenWrites, ended
from fleetctl.adapters.routers.work.board import Posted, now_ms
from fleetctl.adapters.routers.work.ledger import Hand, Ledger
from fleetctl.domain.evidence import ARMS, Arm
from fleetctl.domain.ids import CellId
from fleetctl.domain.split import Served
from fleetctl.domain.units import FULL_BP, Instant
from fleetctl.errors import FleetctlError, TrafficNotApplied

T = TypeVar("T")

TAG, TOKEN_TAG = "fleetctl:split", "fleetctl:token"
COUNT_TAG = {"baseline": "fleetctl:source-consumers", "canary": "fleetctl:target-consumers"}
UNTIL_TAG = {"baseline": "fleetctl:source-until", "canary": "fleetctl:target-until"}
"""Until when what a side has told of its consumers holds, in seconds since 1970; of its own, so that consumers that know none go on."""
TELL_S, SILENT_S, SKEW_S = 60.0, (120.0, 300.0), 60.0
"""How often a side tells that it lives; least and most that it may be silent, as it is while all of it works; how wrong clocks may be."""
MOST_CONSUMERS = 100_000
LOOK_S = 1.0
"""How old a consumer's knowledge of the split may be when it begins a message. AWS answers few such calls a second for a whole account
(5, by its developer guide): a process with many consumers shares one board, which asks once for all of them."""
WAIT_S = 1
"""Longest wait for a message: after it the split is looked at again."""
LONGEST_S = 43_200.0
"""How long SQS lets a consumer hold a message, however often it renews. Source: SQS developer guide, visibility time-out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What a consumer goes by.

    Args:
        consumers: how many of a side were announced last, from 1; a side that none announced, or that is silent since, is not there.
        until: when that ends, in seconds since 1970.
    """

    posted: Posted
    consumers: Mapping[Arm, int]
    until: Mapping[Arm, float] = field(default_factory=dict)


class _Place:
    """The last look at a queue, shared by all consumers of a process: what it found, or why it found nothing."""

    def __init__(self) -> None:
        self.lock, self.telling = threading.Lock(), threading.Lock()
        self.began = -math.inf
        self.found: Look | TrafficNotApplied | None = None


class SqsBoard:
    """The split of one queue per cell, in the queue's tags; safe for threads.

    Args:
        client: gives that of SQS, called within the limit of a call; urls: queue per cell; count: counts what consumers began, by
            their results; held: counts the messages that a side holds (its cell, whether it is the target), None where nobody can tell.
    """

    compares: Literal["target", "single_writer"] = "single_writer"
    keeps_change = True

    def __init__(
        self,
        client: Callable[[], Any],
        urls: dict[CellId, str],
        count: Callable[[CellId, Instant], Served],
        held: Callable[[CellId, bool], int] | None = None,
        *,
        now: Callable[[], Instant] = lambda: datetime.now(UTC),
    ) -> None:
        self._client, self._urls, self._count, self._held, self._now = client, dict(urls), count, held, now
        self._seen: dict[CellId, frozenset[str]] = {}
        self._places = {c: _Place() for c in urls}
        self._open = OpenWrites()

    def look(self, c: CellId) -> Look:
        """Return what stood at most LOOK_S ago, asked once for all consumers; an error is shared as long. Raises TrafficNotApplied."""
        self._url(c)
        place, asked = self._places[c], time.monotonic()
        with place.lock:
            if place.found is None or asked - place.began >= LOOK_S:
                place.began = time.monotonic()
                try:
                    place.found = self._look(c, Deadline())
                except TrafficNotApplied as e:
                    place.found = e
            found = place.found
        if isinstance(found, TrafficNotApplied):
            raise TrafficNotApplied(found.code, found.message, hint=found.hint)  # one of its own for each thread
        return found

    def announce(self, c: CellId, arm: Arm, of: int, silent_s: float = SILENT_S[0]) -> None:
        """Tell everybody how many consumers a side has and that it lives, unless that was told lately. Raises TrafficNotApplied.

        Args:
            silent_s: how long they may all be silent before they count as gone, kept within SILENT_S.
        """
        url, for_s = self._url(c), min(max(SILENT_S[0], silent_s), SILENT_S[1]) + TELL_S
        with self._places[c].telling:
            look, now_s = self.look(c), self._now().timestamp()
            if look.consumers.get(arm) == of and look.until[arm] > now_s + for_s - TELL_S:
                return
            tags = {COUNT_TAG[arm]: str(of), UNTIL_TAG[arm]: str(round(now_s + for_s))}
            self._ask(url, Deadline(), lambda client: client.tag_queue(QueueUrl=url, Tags=tags))
            self._places[c].found = None

    def read(self, c: CellId, deadline: Deadline | None = None) -> Posted:
        """Return what stands. Raises TrafficNotApplied (traffic.router_down, traffic.unknown_cell, traffic.not_shown)."""
        return self._look(c, deadline or Deadline()).posted

    def _look(self, c: CellId, deadline: Deadline) -> Look:
        url = self._url(c)
        found = self._ask(url, deadline, lambda client: dict(client.list_queue_tags(QueueUrl=url).get("Tags") or {}))
        bp, _, mark = str(found.get(TAG, "")).partition("/")
        self._check(c, url, found, read_mark(mark).token)
        share = int(bp) if bp.isascii() and bp.isdigit() and int(bp) <= FULL_BP else 0
        posted = read_mark(mark)
        floor = max(posted.token, read_token(str(found.get(TOKEN_TAG, ""))))  # a fence that came late lowers no floor
        now_s, until = self._now().timestamp(), {arm: float(read_token(str(found.get(UNTIL_TAG[arm], "")))) for arm in ARMS}
        alive = [arm for arm in ARMS if 0 < until[arm] - now_s <= SILENT_S[1] + TELL_S + SKEW_S]
        counts = {arm: n for arm in alive if (n := _count(found.get(COUNT_TAG[arm]))) > 0}
        return Look(posted=Posted(bp=share, mark=replace(posted, token=floor)), consumers=counts, until=until)

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
        """Return the messages that a side holds. Where nobody tells whose they are: all in flight, until SQS lets that side hold none."""
        url, name = self._url(c), "ApproximateNumberOfMessagesNotVisible"
        if self._held is not None:
            held = self._held
            return self._ask(url, deadline, lambda _: held(c, on_target))
        posted = self.read(c, deadline)
        share = posted.bp if on_target else FULL_BP - posted.bp
        over = now_ms() - posted.mark.changed_ms > LONGEST_S * 1_000
        if not share and over and (posted.mark.changed_ms or not posted.mark.token):
            return 0
        return self._ask(
            url, deadline, lambda client: int(client.get_queue_attributes(QueueUrl=url, AttributeNames=[name])["Attributes"][name])
        )

    def _late(self, c: CellId, token: int) -> None:
        """Take a change back that came when nobody waited for it any more, where somebody had fenced us off: the last word is home."""
        deadline = Deadline()
        found = self.read(c, deadline)
        if found.mark.token > token and found.bp > 0:
            self._write(c, found.mark.token, _tag(Posted(mark=replace(found.mark, changed_ms=now_ms()))), deadline)

    def _write(self, c: CellId, floor: int, tags: dict[str, str], deadline: Deadline, late: Callable[[], None] = lambda: None) -> bool:
        if self.read(c, deadline).mark.token != floor:
            return False
        url = self._url(c)

        def write(client: Any) -> None:
            if deadline.left_s() <= 0:  # its client took that long to make: nobody waits for the write any more
                raise TimeoutError("no time is left")
            self._open.write(url, deadline, lambda: client.tag_queue(QueueUrl=url, Tags=tags), late)

        try:
            self._ask(url, deadline, write)
        finally:
            self._places[c].found = None  # the next consumer looks again
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


def _count(told: object) -> int:
    """Return how many consumers a tag tells of, 0 where it tells no such number."""
    text = str(told)
    return n if text.isascii() and text.isdigit() and len(text) < 7 and 0 < (n := int(text)) <= MOST_CONSUMERS else 0


def open_consumers(bp: int, consumers: Mapping[Arm, int]) -> dict[Arm, int]:
    """Return how many of each side may take: as many as can be, and of those that may, the target's never exceed the share.

    Args:
        bp: share of the target, 0 to 10,000; consumers: of each side that announced them and lives. While one does not, the target takes
            nothing below the whole share: so the cap holds where the source's consumers die.
    """
    source, target, rest = consumers.get("baseline", 0), consumers.get("canary", 0), FULL_BP - bp
    if rest == 0:
        return {"baseline": 0, "canary": target}
    if bp == 0 or not source or not target:
        return {"baseline": source, "canary": 0}
    if target * rest > source * bp:
        return {"baseline": source, "canary": source * bp // rest}
    return {"baseline": -(-target * rest // bp), "canary": target}


def may_take(look: Look, arm: Arm, index: int) -> bool:
    """Tell whether consumer `index` (from 0) of a side may take a message."""
    return index < open_consumers(look.posted.bp, look.consumers)[arm]


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
        board: the split; client, url: of the queue; index: of this consumer from 0; of: consumers of its side, announced to the other.
        results: what came of each message, shared by all consumers: SQS gives a message again whose consumer died, so a result counts once
            by the message's id, and a try whose hold lapsed without being renewed counts once per side, as a failure of it. What went back
            untouched was not tried, however often SQS gave it. None: you keep results.
        hold_s: how long it holds a message without renewing it, 1 to 43,200 s (SQS's own limit).
        most_tries: one that was lost so often, by the source too, is worked at no more. One that the target lost is left to the source,
            hidden for `hold_s` where the target gets it again.
        dead_letter: URL of the queue that such a message is moved to, with whence it came; "": it stays, for the queue's redrive policy.
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
        hold_s: int = 300,
        most_tries: int = 3,
        dead_letter: str = "",
        now: Callable[[], Instant] = lambda: datetime.now(UTC),
    ) -> None:
        self._results, self._hold_s, self._most_tries, self._now = results, hold_s, most_tries, now
        self._dead_letter = dead_letter
        self._board, self._client, self._url = board, client, url
        self._cell, self._arm, self._index, self._of = cell, arm, index, of
        self._told_at = -math.inf

    def is_open(self) -> bool:
        """Tell whether this consumer may take; what it knows is at most LOOK_S old."""
        self._tell()
        return may_take(self._board.look(self._cell), self._arm, self._index)

    def take(self) -> Message | None:
        """Return a message to work at, None where there is none or this side is closed. Raises TrafficNotApplied."""
        if not self.is_open():
            return None
        found = self._ask(lambda: self._client.receive_message(**self._wanted()).get("Messages") or [])
        if not found:
            if self._results is not None:
                self._results.lapse(self._cell)
            return None
        with _translated(self._url):
            id_, body, receipt = found[0]["MessageId"], found[0]["Body"], found[0]["ReceiptHandle"]
        hand: Hand | None = None
        try:
            if not self.is_open():
                return None
            message, hand = Message(id=id_, body=body, receipt=receipt, at=self._now()), "given"
            if self._results is not None:
                hand = None
                hand = self._results.hand(
                    self._cell,
                    id_,
                    self._arm,
                    message.at,
                    hold_s=self._hold_s,
                    most_tries=self._most_tries,
                    is_alone=self._board.look(self._cell).posted.bp == FULL_BP,
                )
        finally:
            if hand is None:
                self._show(receipt, 0)
        if hand == "ended":  # its consumer died before it could delete it
            self._delete(receipt)
        if hand == "dead" and self._dead_letter:
            self._bury(message)
        return message if hand == "given" else None  # one that is held or dead stays hidden for `hold_s`

    def renew(self, message: Message) -> bool:
        """Hold a message for `hold_s` from now on: call it well before a hold ends, from a thread beside the work.

        Returns:
            False where it is not held any more: another may work at it.

        Raises:
            TrafficNotApplied: traffic.router_down; call it again.
        """
        if self._results is not None and not self._results.hold(self._cell, message.id, message.at, hold_s=self._hold_s):
            return False
        self._show(message.receipt, self._hold_s)
        self._tell()
        return True

    def done(self, message: Message, *, ok: bool = True) -> bool:
        """Keep the result, then delete the message; False where its result was known already. Raises TrafficNotApplied."""
        counted = self._results is None or self._results.note(self._cell, message.id, self._arm, ok=ok, taken=message.at)
        self._delete(message.receipt)
        return counted

    def _bury(self, message: Message) -> None:
        """Move a dead message away; one that is killed in between moves it twice, and its failures count as often as before."""
        said = {"cell": self._cell, "message": message.id}
        named = {f"fleetctl.{key}": {"DataType": "String", "StringValue": value} for key, value in said.items()}
        self._ask(lambda: self._client.send_message(QueueUrl=self._dead_letter, MessageBody=message.body, MessageAttributes=named))
        self._delete(message.receipt)

    def _tell(self) -> None:
        """Tell that this side lives, once a minute."""
        now_s = self._now().timestamp()
        if now_s - self._told_at >= TELL_S:
            self._board.announce(self._cell, self._arm, self._of, self._hold_s)
            self._told_at = now_s

    def _wanted(self) -> dict[str, Any]:
        return {"QueueUrl": self._url, "MaxNumberOfMessages": 1, "WaitTimeSeconds": WAIT_S, "VisibilityTimeout": self._hold_s}

    def _show(self, receipt: str, after_s: int) -> None:
        """Let SQS give a message again after so many seconds."""
        self._ask(lambda: self._client.change_message_visibility(QueueUrl=self._url, ReceiptHandle=receipt, VisibilityTimeout=after_s))

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
