#!/bin/sh
# Starts the server (Flower's SuperLink) on {{ plan.bind }}, port {{ plan.port }}, until it is ended.
set -eu
here=$(cd -- "$(dirname -- "$0")" && pwd)
{% include "environment.sh" %}
# large messages are given back to the system once they are passed on (GNU's library)
export MALLOC_ARENA_MAX=2 MALLOC_MMAP_THRESHOLD_=1048576 MALLOC_TRIM_THRESHOLD_=1048576

# The server keeps all in memory. After a restart the nodes are unknown to it: run register.sh
# again, then start them again.
# Started as ./server.sh --database FILE it keeps them in a file. WARNING: then every
# update of every client passes through that file, and parts of it stay on the disk: no denial
# covers them.

exec flower-superlink \
    --host {{ plan.bind }} --port {{ plan.port }} \
    --ssl-ca-certfile "$here/certificates/ca.crt" \
    --ssl-certfile "$here/certificates/server.pem" \
    --ssl-keyfile "$here/certificates/server.key" \
    --enable-supernode-auth \
    --disable-runtime-dependency-installation \
    "$@"
