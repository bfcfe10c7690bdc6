"""A federation that cannot become a folder, a certificate or an address is refused."""

import re

import pytest

from covey import ConfigError
from covey_flower.deployment import Plan

EVERY = "0.0.0.0"  # noqa: S104 - looked at, not listened on


@pytest.mark.parametrize(
    ("host", "address", "bind"),
    [
        ("127.0.0.1", "127.0.0.1:8000", "127.0.0.1"),
        ("::1", "[::1]:8000", "::1"),
        ("192.0.2.7", "192.0.2.7:8000", EVERY),
        ("fed.example.org", "fed.example.org:8000", EVERY),
    ],
)
def test_where_the_server_is_and_listens(host, address, bind):
    plan = Plan(("alice",), host)
    assert (plan.address, plan.bind) == (address, bind)
    assert plan.is_local == (bind not in (EVERY, "::"))


@pytest.mark.parametrize(
    ("nodes", "host", "port", "said"),
    [
        ((), "localhost", 8000, "At least one --node"),
        (("a", "b", "a"), "localhost", 8000, "each name once, found a, b, a"),
        (("../a",), "localhost", 8000, "found '../a'"),
        (("-a",), "localhost", 8000, "found '-a'"),
        (("a",), "https://x", 8000, "found 'https://x'"),
        (("a",), "$(id)", 8000, "found '$(id)'"),
        (("a",), "localhost", 65536, "found 65536"),
    ],
)
def test_what_is_refused(nodes, host, port, said):
    with pytest.raises(ConfigError, match=re.escape(said)):
        Plan(nodes, host, port)


def test_the_nodes_of_one_machine_have_ports_of_their_own():
    plan = Plan(("alice", "bob", "carol"))
    assert [plan.node_port(name) for name in plan.nodes] == [9094, 9095, 9096]
