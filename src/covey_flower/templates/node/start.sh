#!/bin/sh
# Takes part in the federation at {{ plan.address }} as {{ name }}, until it is ended.
set -eu
here=$(cd -- "$(dirname -- "$0")" && pwd)
{% include "environment.sh" %}

# Flower starts flwr-clientapp for every message. This one has loaded all that it needs, and
# forks; it ends with the node. Without it, Flower's own is started: slower, and else the same.
python3 -P -m covey_flower.fork_server serve "$here/fork-server" $$ &
export PATH="$here/fork-server:$PATH"

# --port: on which this node's own processes meet; two nodes of one machine need two.
exec flower-supernode \
    --superlink {{ plan.address }} \
    --root-certificates "$here/ca.crt" \
    --auth-supernode-private-key "$here/key" \
    --host 127.0.0.1 --port {{ plan.node_port(name) }} \
    --node-config "file=\"$here/node.toml\"" \
    "$@"
