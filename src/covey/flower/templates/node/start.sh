#!/bin/sh
# Takes part in the federation at {{ plan.address }} as {{ name }}, until it is ended.
set -eu
here=$(cd -- "$(dirname -- "$0")" && pwd)
{% include "environment.sh" %}

# --port: on which this node's own processes meet; two nodes of one machine need two.
exec flower-supernode \
    --superlink {{ plan.address }} \
    --root-certificates "$here/ca.crt" \
    --auth-supernode-private-key "$here/key" \
    --host 127.0.0.1 --port {{ plan.node_port(name) }} \
    --node-config "file=\"$here/node.toml\"" \
    "$@"
