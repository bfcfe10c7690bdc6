"""A witness that speaks C2SP tlog-witness, written from its text."""

import base64
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread

from covey.ledger.tree import TreeHead, is_consistent
from covey.unlearning.signature import COSIGNATURE, PublicKey, SigningKey, key_id, key_line

NAME, KEY = "witness.example/w1", SigningKey.from_private_bytes(bytes([7] * 32))


def cosigned(head: TreeHead, name: str, key: SigningKey, seconds: int) -> TreeHead:
    text = f"cosignature/v1\ntime {seconds}\n{head.body}".encode()
    mark = key_id(name, key.public_key(), COSIGNATURE)
    value = mark + seconds.to_bytes(8, "big") + key.sign(text)
    return replace(head, signatures=(*head.signatures, (name, value)))


@dataclass
class Witness:
    """It follows the logs of one operator, by a clock that the test sets."""

    operator: PublicKey
    seconds: int = 4_000_000_000
    key: SigningKey = KEY
    known: dict[str, TreeHead] = field(default_factory=dict)
    lock: Lock = field(default_factory=Lock)
    url: str = ""

    @property
    def line(self) -> str:
        return key_line(NAME, self.key.public_key(), COSIGNATURE) + "\n"

    def answer(self, body: str) -> tuple[int, str]:
        start, _, note = body.partition("\n\n")
        old, *lines = start.split("\n")
        size, head = int(old.removeprefix("old ")), TreeHead.parse(note)
        if not head.is_signed_by(self.operator):
            return 403, ""
        with self.lock:
            before = self.known.get(head.origin)
            if size != (before.size if before else 0):
                return 409, f"{before.size if before else 0}\n"
            path = [base64.b64decode(each) for each in lines]
            if before:
                sizes, roots = (before.size, head.size), (before.root, head.root)
                if not is_consistent(sizes, roots, path):
                    return 422, ""
            self.known[head.origin] = head
        own = cosigned(replace(head, signatures=()), NAME, self.key, self.seconds)
        return 200, own.note().partition("\n\n")[2]


@contextmanager
def serving(witness: Witness) -> Iterator[Witness]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            found = self.path == "/add-checkpoint"
            status, text = witness.answer(body) if found else (404, "")
            self.send_response(status)
            self.send_header("Content-Length", str(len(text.encode())))
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        witness.url = f"http://127.0.0.1:{server.server_port}"
        yield witness
        server.shutdown()
        thread.join()
