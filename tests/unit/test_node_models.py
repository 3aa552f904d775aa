"""Model files of a nodes file: every mistake with its line, manifests by SHA-256, secrets by reference, nothing secret remembered."""

from __future__ import annotations

import hashlib
import http.server
import threading
from collections.abc import Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from fleetctl.adapters.model_stores.signer import LONGEST_S, ModelSigner
from fleetctl.adapters.secrets.files import FileSecrets
from fleetctl.catalog.matrix import load_matrix
from fleetctl.domain.fleet import SecretRef
from fleetctl.domain.model_files import ModelFile, ModelStore
from fleetctl.errors import ConfigInvalid, CredentialsMissing
from fleetctl.formats.model_files import secret_of
from fleetctl.formats.nodes_file import NodesFile, read_nodes
from fleetctl.usecases.configure_nodes import Nodes, check_nodes, variables_of
from fleetctl.usecases.node_values import values_of

S3 = "{kind: s3, bucket: weights, region: us-east-1}"
SUM = hashlib.sha256(b"weights").hexdigest()
FILE = """\
pool: mi300x-a
release: debian-13-rocm-6.1.2
layer: hip
container: false
stores:
  share: {kind: path, folder: /mnt/share}
  weights: {kind: s3, bucket: weights, region: us-east-1}
models:
  - {store: share, manifest: llama.sha256, folder: meta, into: llama}
  - {store: weights, manifest: llama.sha256, into: copy}
roles:
  model_server_units:
    - {name: chat, environment: {TOKEN: {secret: {env: HUB_TOKEN}}, PLAIN: x}}
hosts:
  node-1: {address: 10.0.0.1}
"""


def read(folder: Path, text: str = FILE, manifest: str = f"{SUM}  ./config.json\n{SUM} *deep/model.bin\n") -> NodesFile:
    (folder / "llama.sha256").write_text(manifest)
    (folder / "nodes.yaml").write_text(text)
    return read_nodes(folder / "nodes.yaml")


def nodes_of(f: NodesFile) -> Nodes:
    return Nodes(
        pool=f.pool, hosts=f.hosts, wanted=f.wanted, roles=f.roles, by_host=f.by_host, pins=f.pins, keys=f.keys,
        stores=f.stores, models=f.models,
    )  # fmt: skip


def test_files_come_from_manifests(tmp_path: Path) -> None:
    file = read(tmp_path)
    assert [(f.store, f.key, f.path) for f in file.models] == [
        ("share", "meta/config.json", "llama/config.json"),
        ("share", "meta/deep/model.bin", "llama/deep/model.bin"),
        ("weights", "config.json", "copy/config.json"),
        ("weights", "deep/model.bin", "copy/deep/model.bin"),
    ]
    assert {f.sha256 for f in file.models} == {SUM}


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("kind: path", "kind: ftp", ":6: store share: it needs a name"),
        ("folder: /mnt/share", "folder: mnt/share", ":6: store share: folder has not the form"),
        ("bucket: weights", "bukket: weights", ":7: store weights: bucket is missing"),
        ("region: us-east-1", "token: {env: X}", ":7: store weights: token is no key of kind s3"),
        ("into: llama", "into: ../etc", ":9: model 1: into leads outside"),
        ("store: share,", "store: other,", ":9: model 1: other is no store"),
        ("into: copy", "onto: copy", ":10: model 2: onto is no key"),
        (S3, "{kind: hub, repository: a/b, revision: main}", ":7: store weights: revision has not"),
        (S3, "{kind: az, account: abc, container: c-1, key: s3cr3t}", "key is not {env: NAME}"),
    ],
)  # fmt: skip
def test_every_mistake_is_told_with_its_line(tmp_path: Path, old: str, new: str, said: str) -> None:
    assert old in FILE
    with pytest.raises(ConfigInvalid) as e:
        read(tmp_path, FILE.replace(old, new, 1))
    assert e.value.code == "config.nodes"
    assert said in "\n".join(e.value.details)


@pytest.mark.parametrize(
    "line", ["", "0" * 63 + "  x", f"{SUM}  /etc/passwd", f"{SUM}  a/../../b", f"{SUM}  a\\nb", f"\\{SUM}  a", f"{SUM}  a//b", "{{ 1 }}"]
)
def test_a_manifest_of_another_form_is_refused(tmp_path: Path, line: str) -> None:
    with pytest.raises(ConfigInvalid) as e:
        read(tmp_path, manifest=line + "\n" if line else "")
    assert e.value.code == "config.models"


def test_two_files_at_one_place_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigInvalid, match="two files would lie at"):
        read(tmp_path, FILE.replace("into: copy", "into: llama"))


def test_secrets_and_addresses_are_put_in_late_and_the_digest_knows_neither(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"HUB_TOKEN": "hush-1", "AWS_ACCESS_KEY_ID": "AKIAEXAMPLE", "AWS_SECRET_ACCESS_KEY": "hush-2"}.items():
        monkeypatch.setenv(name, value)
    nodes = nodes_of(read(tmp_path))
    pinned, _ = check_nodes(nodes, load_matrix(), date(2026, 11, 30))
    before = variables_of(nodes, pinned, "commit")
    assert "hush" not in repr(before)
    assert "X-Amz" not in repr(before)
    secrets = FileSecrets(tmp_path)
    found = values_of(nodes, before, secrets, ModelSigner(secrets), secret_of, 60)
    assert found["model_server_units"] == [{"name": "chat", "environment": {"TOKEN": "hush-1", "PLAIN": "x"}}]
    rows = found["model_store_files"]
    assert isinstance(rows, list)
    assert rows[0] == {"path": "llama/config.json", "sha256": SUM, "source": "/mnt/share/meta/config.json"}
    asked = urlsplit(rows[3]["url"])
    assert asked.path.endswith("/deep/model.bin")
    assert parse_qs(asked.query)["X-Amz-Expires"] == ["960"]
    assert "hush-2" not in rows[3]["url"]


def test_a_variable_that_models_give_cannot_be_given_as_well(tmp_path: Path) -> None:
    nodes = nodes_of(read(tmp_path, FILE.replace("roles:\n", "roles:\n  model_store_files: []\n")))
    pinned, _ = check_nodes(nodes, load_matrix(), date(2026, 11, 30))
    with pytest.raises(ConfigInvalid, match="model_store_files comes from"):
        variables_of(nodes, pinned, "commit")


def test_a_secret_that_is_not_set_is_told_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HUB_TOKEN", raising=False)
    nodes = nodes_of(read(tmp_path))
    secrets = FileSecrets(tmp_path)
    with pytest.raises(CredentialsMissing, match="HUB_TOKEN"):
        values_of(nodes, {"model_server_units": nodes.roles["model_server_units"]}, secrets, ModelSigner(secrets), secret_of, 60)


def test_no_address_outlives_a_week_and_no_value_is_shown() -> None:
    store = ModelStore(name="blobs", kind="az", place="c-1", account="abc", secret=SecretRef(kind="env", name="KEY"))
    file = ModelFile(store="blobs", key="a b.bin", path="a", sha256=SUM)
    signer = ModelSigner(FileSecrets(environment={"KEY": "aGVsbG8="}), lambda: datetime(2026, 11, 30, tzinfo=UTC))
    signed = signer.sign(file, store, 10 * LONGEST_S)
    query = parse_qs(urlsplit(signed.url).query)
    assert signed.url.startswith("https://abc.blob.core.windows.net/c-1/a%20b.bin?")
    assert (query["se"], query["sp"]) == (["2026-12-07T00:00:00Z"], ["r"])
    assert "sig" not in repr(signed)


class _Hub(http.server.BaseHTTPRequestHandler):
    """STAND-IN for a hub: big files are redirected to a signed address, small ones given out, both with the token only."""

    def do_HEAD(self) -> None:
        if self.headers["Authorization"] != "Bearer hush-3":
            self.send_response(401)
        elif self.path.endswith("model.bin"):
            self.send_response(302)
            self.send_header("Location", "/signed/xyz?sig=1")
        else:
            self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *args: object) -> None:
        """Print nothing."""


@pytest.fixture
def hub() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Hub) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def test_a_hub_gives_signed_addresses_for_big_files_and_wants_the_token_for_small_ones(hub: str) -> None:
    signer = ModelSigner(FileSecrets(environment={"GOOD": "hush-3", "BAD": "hush-4"}))
    store = ModelStore(name="hub", kind="hub", place="a/b", endpoint=hub, revision="0" * 40, secret=SecretRef(kind="env", name="GOOD"))
    big, small = (ModelFile(store="hub", key=k, path=k, sha256=SUM) for k in ("model.bin", "config.json"))
    signed = signer.sign(big, store, 60)
    assert (signed.url, dict(signed.headers)) == (f"{hub}/signed/xyz?sig=1", {})
    signed = signer.sign(small, store, 60)
    assert signed.url == f"{hub}/a/b/resolve/{'0' * 40}/config.json"
    assert dict(signed.headers) == {"Authorization": "Bearer hush-3"}
    wrong = ModelStore(name="hub", kind="hub", place="a/b", endpoint=hub, revision="0" * 40, secret=SecretRef(kind="env", name="BAD"))
    with pytest.raises(CredentialsMissing, match="answers 401") as e:
        signer.sign(big, wrong, 60)
    assert "hush" not in str(e.value)
