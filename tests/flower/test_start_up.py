"""What a client's process loads: Flower starts one for every message."""

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

from flower.conftest import settings_with

UNUSED = {
    "covey.api",
    "covey.ledger",
    "covey.report",
    "dp_accounting",
    "matplotlib",
    "scipy.stats",
    "sklearn",
    "sqlalchemy",
}

CLIENT = """
import json, pickle, sys
from flwr.app import Context, RecordDict
from covey.flower.client import client_app
sys.path.insert(0, sys.argv[1])
from flower.inprocess import outside_a_run, reply_from

outside_a_run()
file, messages = pickle.load(sys.stdin.buffer)
for message in messages:
    context = Context(1, 1, {"file": file}, RecordDict(), {})
    reply = reply_from(client_app, message, context)
    told = json.loads(reply.content["covey"]["json"])
    assert not told["failed"], told
print(json.dumps(sorted(sys.modules)))
"""


def test_a_client_answers_without_what_only_a_server_needs(build):
    asked = {}

    def heard(question, reply):
        if question.metadata.dst_node_id == 100:
            task = json.loads(question.content["covey"]["json"])["asked"]["task"]
            asked.setdefault(task, pickle.dumps(question))
        return [reply]

    built = build(settings_with(rounds=1), clients=range(3))
    built.wire = heard
    built.play()
    assert {"hello", "train"} <= set(asked)
    told = pickle.dumps((built.files[100], [pickle.loads(q) for q in asked.values()]))  # noqa: S301
    done = subprocess.run(
        [sys.executable, "-c", CLIENT, str(Path(__file__).parents[1])],
        input=told,
        capture_output=True,
        check=False,
        env=os.environ,
    )
    assert done.returncode == 0, done.stderr.decode()
    assert UNUSED & set(json.loads(done.stdout.splitlines()[-1])) == set()
