"""Traffic, adapter layer: the few calls to AWS that a split needs, with its errors in fleetctl's words. Never decides."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from fleetctl.adapters.deadline import Deadline, within
from fleetctl.adapters.routers.alb.pace import Pace, Throttled, pace_of
from fleetctl.adapters.routers.open_writes import OpenWrites
from fleetctl.domain.units import Instant
from fleetctl.errors import FleetctlError, TrafficNotApplied

_GONE = frozenset({"RuleNotFound", "ListenerNotFound", "RuleNotFoundException", "ListenerNotFoundException"})
_THROTTLED = frozenset(
    {"Throttling", "ThrottlingException", "ThrottledException", "RequestThrottled", "RequestLimitExceeded", "TooManyRequestsException"}
)
"""A call that was thrown back since there were too many; nothing came of it. Source: botocore, retries in "standard" mode."""
PAUSES_S = (0.2, 1.6)
"""First and longest pause before it is asked again, and so many of a call's seconds are kept for what comes after it."""
KEPT_S = 1.5
KNOWN_S = 600.0
"""How long it is believed which load balancer a target group belongs to: it can belong to one alone."""


_LATER = "Run the same command again in a minute"


def _code(e: Any) -> str:
    return str(e.response.get("Error", {}).get("Code", ""))


def is_about_stickiness(e: TrafficNotApplied) -> bool:
    """Tell whether AWS refused actions since a target group is sticky by itself, which it takes beside group stickiness alone."""
    response: Any = getattr(e.__cause__, "response", None) or {}
    error = response.get("Error", {})
    return error.get("Code") == "InvalidConfigurationRequest" and "stickiness" in str(error.get("Message", "")).lower()


class Elb:
    """Listener rules, tags and request counts of one region.

    Args:
        client: makes a client of a service ("elbv2", "cloudwatch"). Each call here ends when the deadline does, whatever its time-outs;
            what AWS throws back since there were too many is asked again until then.
        pace: of an account and Region, by an ARN.
    """

    def __init__(self, client: Callable[[str], Any], router: str, pace: Callable[[str], Pace] = pace_of) -> None:
        self._client = client
        self._clients: dict[str, Any] = {}
        self._router = router
        self._open = OpenWrites()
        self._pace = pace
        self._balancers: dict[str, tuple[float, str]] = {}

    @contextmanager
    def turn(self, arn: str, looks: int, deadline: Deadline) -> Iterator[None]:
        """Take so many looks for what this thread does inside. Raises TrafficNotApplied (traffic.throttled), then nothing was asked."""
        with ExitStack() as stack:
            with self._translated():
                stack.enter_context(self._pace(arn).turn(looks, deadline))
            yield

    def actions(self, arn: str, deadline: Deadline) -> tuple[dict[str, Any], ...]:
        """Return a rule's or listener's actions. Raises TrafficNotApplied."""
        if _is_rule(arn):
            found = self._ask(deadline, lambda: self._of("elbv2").describe_rules(RuleArns=[arn])["Rules"][0]["Actions"], look=arn)
        else:
            call = lambda: self._of("elbv2").describe_listeners(ListenerArns=[arn])["Listeners"][0]["DefaultActions"]  # noqa: E731
            found = self._ask(deadline, call, look=arn)
        return tuple(found)

    def forward(self, arn: str, actions: list[dict[str, Any]], deadline: Deadline, late: Callable[[], None] = lambda: None) -> None:
        """Replace a rule's or listener's actions. Raises TrafficNotApplied.

        Args:
            late: done after it where the answer came when nobody waited for it any more.
        """

        def write() -> None:
            if _is_rule(arn):
                self._of("elbv2").modify_rule(RuleArn=arn, Actions=actions)
            else:
                self._of("elbv2").modify_listener(ListenerArn=arn, DefaultActions=actions)

        self._ask(deadline, lambda: self._open.write(arn, deadline, write, late))

    def open_writes(self, arn: str) -> tuple[threading.Event, ...]:
        """Return what is set when a change that nobody waits for any more has ended, for each that may still come."""
        return self._open.of(arn)

    def tags(self, arn: str, deadline: Deadline) -> dict[str, str]:
        """Return the tags of a rule or listener. Raises TrafficNotApplied."""
        found = self._ask(deadline, lambda: self._of("elbv2").describe_tags(ResourceArns=[arn])["TagDescriptions"], look=arn)
        return {tag["Key"]: tag.get("Value", "") for one in found for tag in one["Tags"]}

    def tag(self, arn: str, key: str, value: str, deadline: Deadline) -> None:
        """Set one tag. Raises TrafficNotApplied."""
        self._ask(deadline, lambda: self._of("elbv2").add_tags(ResourceArns=[arn], Tags=[{"Key": key, "Value": value}]))

    def sticky(self, group: str, deadline: Deadline) -> bool:
        """Tell whether a target group keeps clients to its targets by a cookie of its own. Raises TrafficNotApplied."""
        call = lambda: self._of("elbv2").describe_target_group_attributes(TargetGroupArn=group)["Attributes"]  # noqa: E731
        return any(a["Key"] == "stickiness.enabled" and a.get("Value") == "true" for a in self._ask(deadline, call, look=group))

    def requests(self, group: str, start: Instant, end: Instant, deadline: Deadline) -> dict[Instant, int]:
        """Return the requests of a target group by minute. Raises TrafficNotApplied."""
        if start >= end:
            return {}
        balancer = self._balancer(group, deadline)
        points = self._ask(
            deadline,
            lambda: self._of("cloudwatch").get_metric_statistics(
                Namespace="AWS/ApplicationELB",
                MetricName="RequestCount",
                Dimensions=[
                    {"Name": "TargetGroup", "Value": group.rpartition(":")[2]},
                    {"Name": "LoadBalancer", "Value": balancer},
                ],
                StartTime=start,
                EndTime=end,
                Period=60,
                Statistics=["Sum"],
            )["Datapoints"],
        )
        return {point["Timestamp"]: round(point["Sum"]) for point in points}

    def _balancer(self, group: str, deadline: Deadline) -> str:
        known = self._balancers.get(group)
        if known is None or time.monotonic() - known[0] > KNOWN_S:
            call = lambda: self._of("elbv2").describe_target_groups(TargetGroupArns=[group])["TargetGroups"][0]["LoadBalancerArns"]  # noqa: E731
            found = self._ask(deadline, call, look=group)
            if not found:
                return ""
            known = self._balancers[group] = (time.monotonic(), str(found[0]).partition("loadbalancer/")[2])
        return known[1]

    def _ask(self, deadline: Deadline, action: Callable[[], Any], *, look: str = "") -> Any:
        """Do it; what AWS throws back is done again, as long as there is time. `look`: ARN of what is looked at, "" for other calls."""
        from botocore.exceptions import ClientError

        pause_s, longest_s = PAUSES_S
        with self._translated():
            while True:
                if look:
                    self._pace(look).look(deadline)
                try:
                    return within(deadline, action, self._router)
                except ClientError as e:
                    wait_s = pause_s * random.uniform(0.5, 1.0)  # noqa: S311 - jitter, no secret
                    if _code(e) not in _THROTTLED or deadline.left_s() < wait_s + KEPT_S:
                        raise
                if look:
                    self._pace(look).spent()
                time.sleep(wait_s)
                pause_s = min(2 * pause_s, longest_s)

    def _of(self, service: str) -> Any:
        if service not in self._clients:
            self._clients[service] = self._client(service)
        return self._clients[service]

    @contextmanager
    def _translated(self) -> Iterator[None]:
        from botocore.exceptions import BotoCoreError, ClientError
        from botocore.parsers import ResponseParserError

        try:
            yield
        except FleetctlError as e:
            raise TrafficNotApplied("traffic.router_down", f"router {self._router}: {e.message}", hint=e.hint) from e
        except Throttled as e:
            text = f"router {self._router}: too much is asked of AWS at a time: {e}."
            raise TrafficNotApplied("traffic.throttled", text, hint=_LATER) from e
        except ClientError as e:
            code, said = _code(e), " ".join(str(e.response.get("Error", {}).get("Message", "")).split())[:200].rstrip(".")
            if code in _GONE:
                text = f"router {self._router}: AWS knows no such listener or rule."
                raise TrafficNotApplied("traffic.unknown_cell", text, hint="Correct the ARN in the fleet file.") from e
            text = f"router {self._router}: AWS answers {code} ({e.operation_name}): {said}."
            if code in _THROTTLED:
                raise TrafficNotApplied("traffic.throttled", text, hint=_LATER) from e
            raise TrafficNotApplied("traffic.router_down", text, hint="Run: fleetctl doctor") from e
        except (BotoCoreError, ResponseParserError, TimeoutError, LookupError, TypeError, ValueError, AttributeError) as e:
            text = f"router {self._router}: AWS cannot be asked: {' '.join(str(e).split())[:200].rstrip('.')}."
            raise TrafficNotApplied("traffic.router_down", text, hint="Run: fleetctl doctor") from e


def _is_rule(arn: str) -> bool:
    return ":listener-rule/" in arn
