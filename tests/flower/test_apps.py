"""How a client app finds its client."""

from flwr.app import Context, RecordDict
from pydantic import TypeAdapter

from covey import __version__
from covey.algorithms.client_requests import ClientRequest
from covey_flower.client import client_app
from covey_flower.messages import Hello, Question, make_message
from flower.conftest import settings_with
from flower.inprocess import outside_a_run, reply_from


def hello(node, run):
    """What a node answers to who it is, by what it is told and what its run is."""
    outside_a_run()
    question = Question(__version__, "run", "token", "", ClientRequest("hello"))
    message = make_message(question, 7, 60.0)
    message.metadata.__dict__["_message_id"] = "message"
    reply = reply_from(client_app, message, Context(1, 7, node, RecordDict(), run))
    return TypeAdapter(Hello).validate_json(str(reply.content["covey"]["json"]))


def test_a_node_finds_its_file_by_itself_or_by_its_number_or_answers_nothing_else(build):
    folder = build(settings_with(rounds=1), clients=range(3)).path
    pattern = {"file": f"{folder}/client-{{partition-id:05}}/node.toml"}
    assert hello({"partition-id": 2}, pattern).name == "client-00002"
    own = {"file": f"{folder}/client-00001/node.toml", "partition-id": 2}
    assert hello(own, pattern).name == "client-00001"  # and is not told another one
    for node, run in (({}, {"file": "node.toml"}), ({"partition-id": 2}, {})):
        answer = hello(node, run)
        assert (answer.name, answer.failed) == ("", "ConfigError")
