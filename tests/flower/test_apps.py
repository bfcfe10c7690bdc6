"""How a client app finds its client."""

from importlib.metadata import version

import pytest
from flwr.app import Context, RecordDict
from pydantic import TypeAdapter

from covey.algorithms.client_requests import ClientRequest
from covey.flower.client import client_app
from covey.flower.messages import Hello, Question, make_message
from flower.conftest import settings_with
from flower.inprocess import outside_a_run, reply_from


@pytest.fixture
def folder(build):
    return str(build(settings_with(rounds=1), clients=range(3)).path)


def hello(node, run):
    """What a node answers to who it is, by what it is told and what its run is."""
    outside_a_run()
    question = Question(version("covey"), "run", "token", "", ClientRequest("hello"))
    message = make_message(question, 7, 60.0)
    message.metadata.__dict__["_message_id"] = "message"
    reply = reply_from(client_app, message, Context(1, 7, node, RecordDict(), run))
    return TypeAdapter(Hello).validate_json(str(reply.content["covey"]["json"]))


def test_a_simulated_node_finds_its_file_by_its_number(folder):
    run = {"file": folder + "/client-{partition-id:05}/node.toml"}
    assert hello({"partition-id": 2}, run).name == "client-00002"


def test_a_node_that_knows_its_file_is_not_told_another_one(folder):
    own = {"file": folder + "/client-00001/node.toml", "partition-id": 2}
    run = {"file": folder + "/client-{partition-id:05}/node.toml"}
    assert hello(own, run).name == "client-00001"


@pytest.mark.parametrize(
    ("node", "run"),
    [({}, {"file": "node.toml"}), ({"partition-id": 2}, {})],
    ids=["no number", "no pattern"],
)
def test_a_node_that_cannot_find_its_file_answers_nothing_else(node, run):
    answer = hello(node, run)
    assert (answer.name, answer.failed) == ("", "ConfigError")
