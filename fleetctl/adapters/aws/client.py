"""Inventory, adapter layer: the connection to AWS: session, pace, errors in fleetctl's words. Never a call that writes.

Retries, jitter and client-side rate limits are botocore's own ("adaptive" mode: a token bucket that slows down when AWS throttles).
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from fleetctl.errors import CredentialsMissing, FleetctlError, InventoryFailed

SIGN_IN = "Run: aws sso login (or set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY)"
HOME_REGION = "us-east-1"
"""Asked for the list of regions where none is set."""
RETRIES = 8

_EXPIRED = frozenset(
    {
        "AuthFailure",
        "ExpiredToken",
        "ExpiredTokenException",
        "IncompleteSignature",
        "InvalidClientTokenId",
        "InvalidToken",
        "RequestExpired",
        "SignatureDoesNotMatch",
        "UnrecognizedClientException",
    }
)
_REFUSED = frozenset({"AccessDenied", "AccessDeniedException", "UnauthorizedOperation"})


@dataclass(frozen=True, slots=True, kw_only=True)
class AwsAccess:
    """How AWS is reached.

    Args:
        profile: of the AWS configuration, "" for the default; endpoint: instead of AWS's own, "" for those.
    """

    profile: str = ""
    endpoint: str = ""


class AwsApi:
    """Makes clients; boto3's session is used by one thread at a time, its clients by any."""

    def __init__(self, access: AwsAccess) -> None:
        self._access = access
        self._lock = threading.Lock()
        self._session: Any = None

    @property
    def session(self) -> Any:
        """Return the boto3 session. Raises CredentialsMissing (credentials.aws) for a profile that is not there."""
        with self._lock, translated("the session"):
            if self._session is None:
                import boto3

                self._session = boto3.Session(profile_name=self._access.profile or None)
            return self._session

    def client(self, service: str, region: str, wait_s: float = 60) -> Any:
        """Return a client of one service in one region; a short wait (seconds) is for calls that must not wait, and is not repeated."""
        from botocore.config import Config

        session = self.session
        with self._lock:
            made = session.client(
                service,
                region_name=region,
                endpoint_url=self._access.endpoint or None,
                config=Config(
                    retries={"mode": "adaptive", "max_attempts": RETRIES} if wait_s >= 60 else {"max_attempts": 0},
                    connect_timeout=min(5, wait_s),
                    read_timeout=wait_s,
                    user_agent_extra="fleetctl",
                ),
            )
        if made.meta.service_model.resolved_protocol == "json":
            made.meta.events.register("before-parse", refuse_half)
        return made


def refuse_half(operation_model: Any, response_dict: dict[str, Any], **_: Any) -> None:
    """Refuse an answer in JSON that was cut short: botocore reads it as one without any field.

    Raises:
        ResponseParserError: it should have fields and is no whole object.
    """
    from botocore.parsers import ResponseParserError

    if response_dict["status_code"] >= 300 or operation_model.output_shape is None:
        return
    try:
        is_whole = isinstance(json.loads(response_dict["body"]), dict)
    except ValueError:
        is_whole = False
    if not is_whole:
        raise ResponseParserError(f"the answer to {operation_model.name} is no whole object of JSON")


@contextmanager
def translated(what: str) -> Iterator[None]:
    """Turn botocore's errors into fleetctl's.

    Raises:
        CredentialsMissing: credentials.aws (none, or expired), credentials.aws_rights (a right is missing).
        InventoryFailed: inventory.aws.
    """
    from botocore.exceptions import BotoCoreError, ClientError
    from botocore.parsers import ResponseParserError

    try:
        yield
    except FleetctlError:
        raise
    except ClientError as e:
        error = e.response.get("Error", {})
        code, said = str(error.get("Code", "")), _short(error.get("Message", "") or e)
        if code in _EXPIRED:
            raise CredentialsMissing(
                "credentials.aws", f"AWS does not accept the credential for {what}: {code}: {said}.", hint=SIGN_IN
            ) from e
        if code in _REFUSED:
            hint = "Give the policy of inventory/NAME/access/aws-policy.json to this identity"
            raise CredentialsMissing("credentials.aws_rights", f"AWS refuses {what} ({e.operation_name}): {said}.", hint=hint) from e
        raise InventoryFailed("inventory.aws", f"AWS answers {code or 'an error'} for {what}: {said}.") from e
    except BotoCoreError as e:
        if any(word in type(e).__name__ for word in ("Credential", "SSO", "Token", "Profile", "Login")):
            raise CredentialsMissing("credentials.aws", f"there is no AWS credential for {what}: {_short(e)}.", hint=SIGN_IN) from e
        raise InventoryFailed("inventory.aws", f"AWS cannot be reached for {what}: {_short(e)}.") from e
    except ResponseParserError as e:
        raise InventoryFailed("inventory.aws", f"AWS's answer for {what} cannot be read: {_short(e)}.") from e


def _short(said: object) -> str:
    text = " ".join(str(said).split())
    page = text.lower().find("<!doctype")
    return (text[:page] + "an HTML page" if page >= 0 else text).rstrip(".")[:200]
