"""Configure, adapters layer: signs addresses of model files, so that hosts need no credential. Never reads or writes a model."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from http.client import HTTPMessage
from typing import IO, Any
from urllib.parse import quote, urljoin

from fleetctl.domain.model_files import ModelFile, ModelStore, SignedFile
from fleetctl.errors import CredentialsMissing, ToolMissing
from fleetctl.ports.state import Secrets

LONGEST_S = 7 * 86_400
"""An S3 address lives no longer. Source: AWS, Signature Version 4 query parameters, X-Amz-Expires."""
HUB = "https://huggingface.co"
TIMEOUT_S = 30


class ModelSigner:
    """`ModelSources` over S3, Azure Blob storage, a hub and folders."""

    def __init__(self, secrets: Secrets, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        """Remember where secrets come from; `now` dates what is signed."""
        self._secrets = secrets
        self._now = now
        self._clients: dict[str, Any] = {}

    def sign(self, file: ModelFile, store: ModelStore, seconds: int) -> SignedFile:
        """Return how a host gets a file for that many seconds, at most a week.

        Raises:
            CredentialsMissing: credentials.missing, credentials.model_store (who signs is not known, or is refused).
            ToolMissing: tool.azure_blob_missing.
        """
        seconds = min(seconds, LONGEST_S)
        match store.kind:
            case "path":
                return SignedFile(path=file.path, sha256=file.sha256, source=f"{store.place.rstrip('/')}/{file.key}")
            case "s3":
                return SignedFile(path=file.path, sha256=file.sha256, url=self._s3(file, store, seconds))
            case "az":
                return SignedFile(path=file.path, sha256=file.sha256, url=self._az(file, store, seconds))
            case "hub":
                return self._hub(file, store)

    def _s3(self, file: ModelFile, store: ModelStore, seconds: int) -> str:
        import boto3
        from botocore.config import Config
        from botocore.exceptions import BotoCoreError

        try:
            client = self._clients.get(store.name)
            if client is None:
                session = boto3.Session(profile_name=store.profile or None)
                config = Config(signature_version="s3v4", s3={"addressing_style": "path" if store.endpoint else "auto"})
                client = session.client("s3", region_name=store.region or None, endpoint_url=store.endpoint or None, config=config)
                self._clients[store.name] = client
            where = {"Bucket": store.place, "Key": file.key}
            return str(client.generate_presigned_url("get_object", Params=where, ExpiresIn=seconds))
        except BotoCoreError as e:
            hint = "Run: aws sso login (or set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY)"
            raise _refused(store, type(e).__name__, hint) from e

    def _az(self, file: ModelFile, store: ModelStore, seconds: int) -> str:
        try:
            from azure.core.exceptions import AzureError
            from azure.storage.blob import BlobSasPermissions, generate_blob_sas
        except ImportError as e:
            text = f"signing addresses of {store.name} needs azure-storage-blob"
            raise ToolMissing("tool.azure_blob_missing", text, hint="Run: pip install 'fleetctl[models]'") from e
        base = store.endpoint.rstrip("/") or f"https://{store.account}.blob.core.windows.net"
        until = self._now() + timedelta(seconds=seconds)
        rights = BlobSasPermissions(read=True)
        try:
            how: dict[str, Any]
            if store.secret is not None:
                how = {"account_key": self._secrets.resolve(store.secret)}
            else:
                how = {"user_delegation_key": self._delegation(store, base, until)}
            token = generate_blob_sas(store.account, store.place, file.key, permission=rights, expiry=until, **how)
        except (AzureError, ValueError) as e:
            hint = "Run: az login, with the right Storage Blob Delegator, or give the store's key"
            raise _refused(store, type(e).__name__, hint) from e
        return f"{base}/{store.place}/{quote(file.key)}?{token}"

    def _delegation(self, store: ModelStore, base: str, until: datetime) -> Any:
        """Return the key that Azure lets this identity sign with; one request per store."""
        from azure.identity import DefaultAzureCredential
        from azure.storage.blob import BlobServiceClient

        if store.name not in self._clients:
            credential = DefaultAzureCredential(exclude_interactive_browser_credential=True)
            with BlobServiceClient(base, credential=credential) as service:
                self._clients[store.name] = service.get_user_delegation_key(self._now() - timedelta(minutes=5), until)
        return self._clients[store.name]

    def _hub(self, file: ModelFile, store: ModelStore) -> SignedFile:
        """Return the address that the hub redirects to, which is signed; a small file is not redirected and needs the token itself."""
        url = f"{store.endpoint.rstrip('/') or HUB}/{store.place}/resolve/{store.revision}/{quote(file.key)}"
        if store.secret is None:
            return SignedFile(path=file.path, sha256=file.sha256, url=url)
        headers = {"Authorization": f"Bearer {self._secrets.resolve(store.secret)}"}
        signed = _redirect(url, headers, store)
        return SignedFile(path=file.path, sha256=file.sha256, url=signed or url, headers={} if signed else headers)


class _Stay(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: where it leads is what is wanted."""

    def redirect_request(self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str) -> None:
        return None


def _redirect(url: str, headers: Mapping[str, str], store: ModelStore) -> str:
    """Return where a file of the hub really lies, "" where the hub gives it out itself."""
    request = urllib.request.Request(url, headers=dict(headers), method="HEAD")  # noqa: S310 - http and https only, by the nodes file
    try:
        with urllib.request.build_opener(_Stay).open(request, timeout=TIMEOUT_S):
            return ""
    except urllib.error.HTTPError as e:
        with e:
            if e.code in (301, 302, 303, 307, 308) and e.headers.get("Location"):
                return urljoin(url, str(e.headers["Location"]))
            raise _refused(store, f"the hub answers {e.code}", "Accept the model's terms with this token, or give another") from e
    except OSError as e:
        raise _refused(store, f"the hub cannot be reached ({type(e).__name__})", "Run the same command again") from e


def _refused(store: ModelStore, why: str, hint: str) -> CredentialsMissing:
    return CredentialsMissing("credentials.model_store", f"addresses of the store {store.name} cannot be signed: {why}.", hint=hint)
