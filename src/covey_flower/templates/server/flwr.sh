#!/bin/sh
# Flower's own command, for this federation: ./flwr.sh run app {{ connection }} --stream
set -eu
here=$(cd -- "$(dirname -- "$0")" && pwd)
{% include "environment.sh" %}

exec flwr "$@"
