"""Provision, tests: a lab double of the Terraform provider azurerm: its schema from the facts file, its deeds at the ARM
double. Never the real one.

It is found in a local mirror under the address hashicorp/azurerm, so that the very stacks of this project run over it by a
real Terraform.
What it keeps of azurerm's habits: a machine that fails in polling stays in Azure and is not in the state; a resource that
exists already must be imported;
an empty Code in the text of a failed poll.
"""

from __future__ import annotations

import json
import os
import ssl
import sys
import time
import urllib.error
import urllib.request
from typing import Any

from tf import iface, schema, types, utils
from tf.gen import tfplugin_pb2 as pb
from tf.runner import run_provider

from tests.doubles.arm_facts import SUBSCRIPTION
from tests.doubles.azurerm_facts import facts
from tests.doubles.azurerm_kinds import KINDS, REPLACES, Kind, body_of, computed_of, drifted

_POLL_S = 0.05
_SIMPLE = {"string": types.String, "number": types.Number, "bool": types.Bool}


class Whole(types.TfType):  # type: ignore[misc]  # the package is untyped
    """A type that is passed through as it is, by its cty notation."""

    def __init__(self, notation: object) -> None:
        self._notation = json.dumps(notation).encode()

    def encode(self, value: Any) -> Any:
        """Return the value."""
        return value

    def decode(self, value: Any) -> Any:
        """Return the value."""
        return value

    def semantically_equal(self, a_decoded: Any, b_decoded: Any) -> bool:
        """Compare; sets come in any order."""
        if isinstance(a_decoded, list) and isinstance(b_decoded, list):
            return sorted(map(repr, a_decoded)) == sorted(map(repr, b_decoded))
        return bool(a_decoded == b_decoded)

    def tf_type(self) -> bytes:
        """Return the notation."""
        return self._notation


_MODES = {"list": pb.Schema.NestedBlock.NestingMode.LIST, "set": pb.Schema.NestedBlock.NestingMode.SET}
_MODES["single"] = pb.Schema.NestedBlock.NestingMode.SINGLE


class Nested(schema.NestedBlock):  # type: ignore[misc]  # the package is untyped
    """A nested block of any mode; its values are passed through as they are."""

    def __init__(self, name: str, facts_: dict[str, Any]) -> None:
        super().__init__(name, schema.NestMode.Set, block_from(facts_["block"]), facts_.get("min_items"), facts_.get("max_items"))
        self._mode = facts_["nesting_mode"]

    def to_pb(self) -> Any:
        """Return the protocol's form, with the true mode."""
        return pb.Schema.NestedBlock(
            type_name=self.type_name,
            block=self.block.to_pb(),
            min_items=self.min_items,
            max_items=self.max_items,
            nesting=_MODES[self._mode],
        )

    def encode(self, value: Any) -> Any:
        """Return the value."""
        return value

    def decode(self, value: Any) -> Any:
        """Return the value."""
        return value

    def semantically_equal(self, a_decoded: Any, b_decoded: Any) -> bool:
        """Compare."""
        return bool(a_decoded == b_decoded)


def block_from(found: dict[str, Any]) -> schema.Block:
    """Make a block from facts."""
    return schema.Block(attributes=attributes_from(found, ""), block_types=blocks_from(found))


def attributes_from(found: dict[str, Any], kind: str) -> list[schema.Attribute]:
    """Make attributes from facts."""
    made = []
    for name, a in found.get("attributes", {}).items():
        type_ = _SIMPLE[a["type"]]() if isinstance(a["type"], str) else Whole(a["type"])
        flags = {k: bool(a.get(k)) for k in ("required", "optional", "computed", "sensitive")}
        made.append(schema.Attribute(name, type_, requires_replace=name in REPLACES and kind != "", **flags))
    return made


def blocks_from(found: dict[str, Any]) -> list[schema.NestedBlock]:
    """Make nested blocks from facts."""
    return [Nested(name, b) for name, b in found.get("block_types", {}).items()]


class ArmError(Exception):
    """What the double answered; `text` is written as azurerm writes it."""

    def __init__(self, status: int, code: str, text: str) -> None:
        super().__init__(text)
        self.status, self.code = status, code


class Client:
    """Talks to the ARM double."""

    def __init__(self) -> None:
        self.url = os.environ.get("FLEETCTL_ARM_DOUBLE", "")
        ca = os.environ.get("FLEETCTL_ARM_DOUBLE_CA", "")
        self._context = ssl.create_default_context(cafile=ca) if ca else None

    def call(self, method: str, path: str, body: object = None) -> tuple[int, dict[str, Any], dict[str, str]]:
        """Return status, body and headers; raise ArmError where it refuses. Waits up to three times where it is throttled."""
        if not self.url:
            raise ArmError(
                0, "AuthenticationFailed", "building AzureRM Client: no ARM double is named in FLEETCTL_ARM_DOUBLE (this is a lab double)"
            )
        for attempt in range(4):
            target = path if path.startswith("https:") else f"{self.url}{path}"
            request = urllib.request.Request(target, method=method, data=None if body is None else json.dumps(body).encode())
            request.add_header("Content-Type", "application/json")
            try:
                with urllib.request.urlopen(request, context=self._context, timeout=60) as answer:
                    raw = answer.read()
                    return answer.status, json.loads(raw) if raw else {}, dict(answer.headers)
            except urllib.error.HTTPError as e:
                raw = e.read()
                found = json.loads(raw).get("error", {}) if raw else {}
                if e.code == 429 and attempt < 3:
                    time.sleep(min(float(e.headers.get("Retry-After", 1)), 2.0))
                    continue
                code, message = found.get("code", ""), found.get("message", "")
                raise ArmError(e.code, code, f"unexpected status {e.code} ({e.code} {e.reason}) with error: {code}: {message}") from e
        raise AssertionError("not reached")

    def put_and_wait(self, path: str, body: object) -> dict[str, Any]:
        """PUT and poll to the end."""
        _, made, headers = self.call("PUT", path, body)
        where = headers.get("Azure-AsyncOperation")
        while where:
            _, polled, _ = self.call("GET", where)
            if polled["status"] == "Failed":
                error = polled["error"]
                raise ArmError(200, error["code"], _polling_text(error))
            if polled["status"] == "Succeeded":
                return self.call("GET", path)[1]
            time.sleep(_POLL_S)
        return made


def _polling_text(error: dict[str, str]) -> str:
    return (
        "polling after CreateOrUpdate: polling failed: the Azure API returned the following error:\n\n"
        f'Status: "{error["code"]}"\nCode: ""\nMessage: "{error["message"]}"\nActivity Id: ""\n'
    )


class ArmResource(iface.Resource):  # type: ignore[misc]  # the package is untyped
    """Any resource of azurerm, by its row in KINDS."""

    kind: Kind

    def __init__(self, provider: Provider) -> None:
        self._client = provider.client

    @classmethod
    def get_name(cls) -> str:
        """Return the name without its prefix."""
        return cls.kind.name

    @classmethod
    def get_schema(cls) -> schema.Schema:
        """Make the schema from the facts."""
        found = facts()["resources"][f"azurerm_{cls.kind.name}"]["block"]
        return schema.Schema(attributes=attributes_from(found, cls.kind.name), block_types=blocks_from(found), version=0)

    def create(self, ctx: iface.CreateContext, planned: dict[str, Any]) -> dict[str, Any] | None:
        """Make it; what fails in polling stays at the double and is not put into the state."""
        path = self.kind.path(planned)
        what = f'creating {self.kind.title} (Subscription: "{SUBSCRIPTION}"\nName: "{planned.get("name", "")}")'
        try:
            self._client.call("GET", path)
        except ArmError as e:
            if e.status != 404:
                ctx.diagnostics.add_error(f"{what}: {e}")
                return None
        else:
            ctx.diagnostics.add_error(
                f'a resource with the ID "{path}" already exists - to be managed via Terraform this resource needs to be '
                f"imported into the State."
            )
            return None
        try:
            made = self._client.put_and_wait(path, body_of(self.kind, planned))
        except ArmError as e:
            ctx.diagnostics.add_error(f"{what}: {e}")
            return None
        return computed_of(self.kind, planned, made, self.get_schema())

    def read(self, ctx: iface.ReadContext, current: dict[str, Any]) -> dict[str, Any] | None:
        """Read it; gone is None."""
        try:
            _, found, _ = self._client.call("GET", current["id"])
        except ArmError as e:
            if e.status == 404:
                return None
            ctx.diagnostics.add_error(f"retrieving {self.kind.title}: {e}")
            return current
        return drifted(self.kind, current, found)

    def update(self, ctx: iface.UpdateContext, current: dict[str, Any], planned: dict[str, Any]) -> dict[str, Any] | None:
        """Write it anew."""
        try:
            made = self._client.put_and_wait(current["id"], body_of(self.kind, planned))
        except ArmError as e:
            ctx.diagnostics.add_error(f"updating {self.kind.title}: {e}")
            return current
        return computed_of(self.kind, planned, made, self.get_schema())

    def delete(self, ctx: iface.DeleteContext, current: dict[str, Any]) -> None:
        """Delete it; a resource group that holds anything is refused, as azurerm's feature prevent_deletion_if_contains_resources does."""
        try:
            if not self.kind.arm and self._client.call("GET", f"{current['id']}/resources")[1]["value"]:
                ctx.diagnostics.add_error(f"deleting {self.kind.title}: the Resource Group still contains Resources.")
                return
            self._client.call("DELETE", current["id"])
            disk = [d.get("id") for d in current.get("os_disk") or [] if d.get("id")]
            for id_ in disk:
                self._client.call("DELETE", id_)
        except ArmError as e:
            ctx.diagnostics.add_error(f"deleting {self.kind.title}: {e}")

    def upgrade(self, ctx: iface.UpgradeContext, version: int, old: dict[str, Any]) -> dict[str, Any]:
        """Return it as it is."""
        return old

    def import_(self, ctx: iface.ImportContext, id: str) -> dict[str, Any] | None:  # noqa: A002 (the package's name)
        """Read it by its id: the double keeps the arguments that it was made with."""
        try:
            _, found, _ = self._client.call("GET", id)
        except ArmError as e:
            ctx.diagnostics.add_error(f"importing {self.kind.title}: {e}")
            return None
        shape = self.get_schema()
        names = [a.name for a in shape.attributes] + [b.type_name for b in shape.block_types]
        given = found.get("x-arguments", {})
        return computed_of(self.kind, {n: given.get(n) for n in names}, found, shape)


class Provider(iface.Provider):  # type: ignore[misc]  # the package is untyped
    """The lab double of azurerm."""

    def __init__(self) -> None:
        self.client = Client()

    def get_model_prefix(self) -> str:
        """Return the prefix."""
        return "azurerm_"

    def full_name(self) -> str:
        """Return the address."""
        return "registry.terraform.io/hashicorp/azurerm"

    def get_provider_schema(self, diags: utils.Diagnostics) -> schema.Schema:
        """Make the provider's own schema from the facts."""
        found = facts()["provider_config"]["block"]
        return schema.Schema(attributes=attributes_from(found, ""), block_types=blocks_from(found), version=0)

    def validate_config(self, diags: utils.Diagnostics, config: dict[str, Any]) -> None:
        """Take everything."""

    def configure_provider(self, diags: utils.Diagnostics, config: dict[str, Any]) -> None:
        """Look whether the double answers, as azurerm looks whether it may log in."""
        try:
            self.client.call("GET", f"/subscriptions/{SUBSCRIPTION}/resources")
        except (ArmError, OSError) as e:
            diags.add_error("building account: could not acquire access token to parse claims", f"{e}")

    def get_data_sources(self) -> list[type[iface.DataSource]]:
        """Return none: the stacks use none of azurerm's."""
        return []

    def get_resources(self) -> list[type[iface.Resource]]:
        """Return a class per row of KINDS."""
        return [type(f"Arm_{k.name}", (ArmResource,), {"kind": k}) for k in KINDS]


if __name__ == "__main__":
    run_provider(Provider(), sys.argv)
