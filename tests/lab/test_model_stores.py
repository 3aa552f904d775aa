"""Signed addresses of model files: they fetch without a credential, that file only, and not for ever. moto and azurite are emulators."""

from __future__ import annotations

import hashlib
import urllib.error
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from fleetctl.adapters.model_stores.signer import ModelSigner
from fleetctl.adapters.secrets.files import FileSecrets
from fleetctl.domain.fleet import SecretRef
from fleetctl.domain.model_files import ModelFile, ModelStore
from tests.fakes import azurite as az
from tests.fakes.moto_account import CREDENTIALS, free_port, moto_server

pytest.importorskip("moto", reason="the package moto (a development dependency) is not installed")
pytestmark = [pytest.mark.lab, pytest.mark.slow]
BODY = b"weights"
NAME = "llama/a b+c.bin"
FILE = ModelFile(store="s", key=NAME, path="m", sha256=hashlib.sha256(BODY).hexdigest())


def fetch(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=30) as answer:
        body: bytes = answer.read()
        return body


def test_a_file_of_s3_is_fetched_by_its_signed_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    with moto_server(tmp_path) as url:
        import boto3

        client: Any = boto3.client("s3", endpoint_url=url)
        client.create_bucket(Bucket="weights")
        client.put_object(Bucket="weights", Key=NAME, Body=BODY)
        store = ModelStore(name="s", kind="s3", place="weights", endpoint=url, region="us-east-1")
        signed = ModelSigner(FileSecrets()).sign(FILE, store, 60)
        assert fetch(signed.url) == BODY
        assert "X-Amz-Signature=" in signed.url


@pytest.fixture
def blobs(tmp_path: Path) -> Iterator[ModelStore]:
    if az.program() is None:
        pytest.skip(az.MISSING)
    from azure.storage.blob import BlobServiceClient

    with az.azurite(tmp_path, free_port()) as url:
        with BlobServiceClient(url, credential=az.KEY) as service:
            service.create_container("models")
            service.get_blob_client("models", NAME).upload_blob(BODY)
            service.get_blob_client("models", "other").upload_blob(b"x")
        yield ModelStore(name="s", kind="az", place="models", account=az.ACCOUNT, endpoint=url, secret=SecretRef(kind="env", name="KEY"))


def test_a_file_of_azure_is_fetched_by_its_signed_address_and_by_no_other(blobs: ModelStore) -> None:
    secrets = FileSecrets(environment={"KEY": az.KEY})
    signed = ModelSigner(secrets).sign(FILE, blobs, 60)
    assert fetch(signed.url) == BODY
    late = ModelSigner(secrets, lambda: datetime.now(UTC) - timedelta(hours=1)).sign(FILE, blobs, 60)
    other = signed.url.replace("a%20b%2Bc.bin", "x").replace("llama/x", "other")
    assert other != signed.url
    for url in (late.url, other, signed.url.partition("?")[0], signed.url.replace("sp=r", "sp=rw")):
        with pytest.raises(urllib.error.HTTPError) as e:
            fetch(url)
        e.value.close()
        assert e.value.code in (403, 404), url
