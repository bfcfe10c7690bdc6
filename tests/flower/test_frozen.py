"""What does not train of a model is on no wire, and is the server's at every client."""

import tomli_w

from covey.base.events import AnswerRefused
from flower.conftest import all_of, settings_with
from runs.test_frozen import Adapted


def settings():
    found = settings_with(rounds=2, risk={"name": "none"}, train={"optimizer": {"momentum": 0.0}})
    model = {"name": "runs.test_frozen:Adapted", "personal": ["*.bias"]}
    return {**found, "model": model, "method": {"name": "fedavg"}}


def test_only_what_trains_for_all_is_sent_and_it_ends_as_in_a_simulation(build):
    federation = build(settings())
    names = set[str]()

    def watching(question, reply):
        for message in (question, reply):
            for record in message.content.array_records.values():
                names.update(record)
        return [reply]

    federation.wire = watching
    there = federation.play(nodes=4)
    assert names == {"head.weight"}
    assert there.params(0).keys() == Adapted().state_dict().keys()
    assert there.summary.model_hash == federation.simulated().summary.model_hash


def test_a_client_with_other_frozen_parameters_takes_no_part(build):
    federation = build(settings(), clients=range(3))
    other = {
        **settings(),
        "seed": 7,
        "engine": {"name": "flower"},
        "data": federation.settings["data"],
    }
    (federation.path / "other.toml").write_text(tomli_w.dumps(other))
    odd = federation.path / "client-00001" / "node.toml"
    odd.write_text(odd.read_text().replace("covey.toml", "other.toml"))
    result = federation.play(nodes=3)
    refused = all_of(AnswerRefused, result)
    assert {each.handle for each in refused} == {result.names["client-00001"]}
