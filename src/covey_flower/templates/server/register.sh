#!/bin/sh
# Registers with the running server whose keys may join. Before the nodes start: one whose key
# is unknown ends, with exit code 305 in its log. Needs nodes/NAME/key.pub alone; may be run again at any time.
set -eu
here=$(cd -- "$(dirname -- "$0")" && pwd)

tries=30
until "$here/flwr.sh" supernode list {{ connection }} >/dev/null 2>&1; do
    tries=$((tries - 1))
    if [ "$tries" -eq 0 ]; then
        echo "The server at {{ plan.address }} does not answer. Start server.sh first." >&2
        exit 1
    fi
    sleep 1
done

mkdir -p "$here/flwr/registered"
failed=0
for key in "$here"/nodes/*/key.pub; do
    folder=${key%/key.pub}
    name=${folder##*/}
    answer=$("$here/flwr.sh" supernode register "$key" {{ connection }} --name "$name" --format json) || true
    case $answer in
    *'"success": true'*)
        # which node has which name: the server's own lists do not say
        printf '%s\n' "$answer" >"$here/flwr/registered/$name.json"
        echo "$name: registered"
        ;;
    *"already in use"*)
        echo "$name: was registered before"
        ;;
    *)
        echo "$name: not registered: $answer" >&2
        failed=1
        ;;
    esac
done
exit "$failed"
