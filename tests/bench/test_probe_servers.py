"""`battery probe` against servers of every manner: what it asks of them, and what it does where they are odd."""

from __future__ import annotations

import json
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from byte_server import (
    DONE,
    HEAD,
    PLAIN,
    STOP,
    ByteServer,
    chunked,
    delta,
    usage,
)

from battery.bench import probe
from battery.cli import main

Probe = Callable[..., tuple[int, dict[str, Any]]]
TWO = delta(content="a") + delta(content="b")


def test_what_is_sent(server: ByteServer, probed: Probe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEY_OF_MINE", "s3cret-key")
    body = b'{"data": [{"id": 5}, {"id": "real-name"}]}'
    server.health = [b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)]
    server.script = chunked(delta(content="my s3cret-key"), STOP, usage(3), DONE)
    _, seen = probed(
        f"{server.url}/v1/", "--prompt", "é", "--max-tokens", "9", "--api-key-env", "KEY_OF_MINE"
    )
    assert seen["text"] == "my <redacted>" and "s3cret" not in json.dumps(seen)
    head, _, raw = server.asked[-1].partition(b"\r\n\r\n")
    assert head.startswith(b"POST /v1/chat/completions ") and b"Bearer s3cret-key" in head
    assert json.loads(raw) == {
        "model": "real-name", "messages": [{"role": "user", "content": "é"}], "max_tokens": 9, "stream": True,
        "stream_options": {"include_usage": True},
    }  # fmt: skip
    assert [asked.split()[1] for asked in server.asked] == [b"/v1/models", b"/v1/chat/completions"]
    server.asked.clear()
    prompts = set()
    for _ in range(2):
        probed(f"{server.url}/v1", "--model", "m")
        prompts.add(
            json.loads(server.asked[-1].partition(b"\r\n\r\n")[2])["messages"][0]["content"]
        )
    assert (
        len(prompts) == len(server.asked) == 2
    )  # a prompt of its own each time, and no other request


@pytest.mark.parametrize(
    "models",
    [
        b"HTTP/1.1 404 X\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nnope",
        b"HTTP/1.0 200 OK\r\n\r\n",
        b"what is this\r\n\r\n",
        b"",
    ],
)
def test_a_server_without_models_is_asked_for_the_default(
    server: ByteServer, probed: Probe, models: bytes
) -> None:
    server.health, server.script = [models, "close"], chunked(PLAIN)
    code, seen = probed(f"{server.url}/v1")
    assert (code, seen["evidence"]["model"]) == (0, "default")
    assert seen["evidence"]["model_from"].startswith("default: ")


def test_a_server_that_never_answers_a_get(
    server: ByteServer, probed: Probe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe, "LOOK_S", 0.2)
    server.health, server.script = ["hang"], chunked(PLAIN)
    assert probed(f"{server.url}/v1")[0] == 0


@pytest.mark.parametrize("protocol", ["HTTP/1.0", "HTTP/1.1"])
def test_a_server_that_serves_one_connection_at_a_time(probed: Probe, protocol: str) -> None:
    """With a kept connection such a server would never come to the second one."""

    class One(BaseHTTPRequestHandler):
        protocol_version = protocol

        def do_GET(self) -> None:
            self.send_error(404)

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(PLAIN)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with HTTPServer(("127.0.0.1", 0), One) as one:
        serving = threading.Thread(target=one.serve_forever, args=(0.02,), daemon=True)
        serving.start()
        code, seen = probed(f"http://127.0.0.1:{one.server_port}/v1", "--timeout", "5")
        one.shutdown()
        serving.join(5)
    assert (code, seen["text"]) == (0, "ab"), seen


@pytest.mark.parametrize("words", [(), ("--model", "m")])
def test_nobody_there(probed: Probe, words: tuple[str, ...]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        url = f"http://127.0.0.1:{gone.getsockname()[1]}/v1"
    code, seen = probed(url, *words)
    assert (code, seen["outcome"], seen["cold"]) == (6, "error", "unverified")
    assert "refused" in seen["reason"] and set(seen["metrics"].values()) == {None}
    code, seen = probed("http://no-such-host.invalid/v1", *words)
    assert (code, seen["outcome"]) == (6, "error") and "cannot connect" in seen["reason"]


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["127.0.0.1:8080/v1"], "give a base URL such as"),
        (["ftp://host/v1"], "give a base URL such as"),
        (["http:///v1"], "give a base URL such as"),
        (["http://host:99999/v1"], "range"),
        (["http://host:0/v1"], "give a base URL such as"),
        (["http://ho st/v1"], "give a base URL such as"),
        (["http://host/v1/chat/completions"], "base URL only"),
        (["http://host/v1?key=1"], "base URL only"),
        (["http://me:pass@host/v1"], "name or a password"),
        (["http://host/v1", "--api-key-env", "NOT_SET_AT_ALL"], "not set or empty"),
        (["http://host/v1", "--max-tokens", "0"], "--max-tokens"),
        ([], "url"),
    ],
)
def test_wrong_words_are_one_line_and_code_2(
    capsys: pytest.CaptureFixture[str], words: list[str], complaint: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["probe", *words, "--json"])
    told = capsys.readouterr()
    assert (ended.value.code, told.out, told.err.count("\n")) == (2, "", 1)
    assert complaint in told.err and "pass@" not in told.err


def test_the_summary_for_people(server: ByteServer, capsys: pytest.CaptureFixture[str]) -> None:
    server.script = chunked(TWO, STOP, DONE)
    with pytest.raises(SystemExit):
        main(["probe", f"{server.url}/v1"])
    told = capsys.readouterr().out
    assert (
        "outcome        ok" in told
        and "tokens         unknown in 2 events (source: estimate)" in told
    )
    assert "decode         –" in told and "text           'ab'" in told and "unverified" in told


def certificate(folder: Path) -> tuple[Path, Path]:
    """A self-signed certificate for loopback and its key, made on the spot."""
    pem, key = folder / "its.pem", folder / "its.key"
    line = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "2",
        "-subj",
        "/CN=localhost",
    ]
    line += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(pem)]
    try:
        subprocess.run(line, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as lacking:
        pytest.skip(f"no openssl that makes a certificate: {lacking}")
    return pem, key


def test_https_is_held_to_its_certificate(
    tmp_path: Path, probed: Probe, monkeypatch: pytest.MonkeyPatch
) -> None:
    pem, key = certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem, key)
    server = ByteServer(context)
    url = server.url.replace("http:", "https:") + "/v1"
    head, *rest = chunked(*(line + b"\n\n" for line in PLAIN.split(b"\n\n") if line))
    server.script = [head, 0.05, *rest]
    for words in ((), ("--model", "m")):
        code, seen = probed(url, *words)
        assert (code, seen["outcome"]) == (6, "error")
        assert "CERTIFICATE_VERIFY_FAILED" in seen["reason"] and "SSL_CERT_FILE" in seen["reason"]
    monkeypatch.setenv("SSL_CERT_FILE", str(pem))
    for words in ((), ("--model", "m")):
        code, seen = probed(url, *words)
        assert (code, seen["text"]) == (0, "ab"), seen["reason"]
        assert seen["metrics"]["ttft_s"] > 0.05
    server.close()


def test_the_verb_in_a_process_of_its_own(server: ByteServer) -> None:
    server.script = [f"{HEAD}\r\n".encode(), TWO, "close"]
    began = time.monotonic()
    line = [sys.executable, "-m", "battery", "probe", f"{server.url}/v1", "--json"]
    done = subprocess.run(line, capture_output=True, text=True, timeout=60)
    assert time.monotonic() - began < 60 and done.returncode == 4 and done.stderr == ""
    assert json.loads(done.stdout)["outcome"] == "error"
