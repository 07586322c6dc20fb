#!/bin/sh
# Moves the keys of thirteen real clients with `keybearer adopt`, in a home folder that has them as people have them, and
# prints a table: whether each client answers with its bare key, whether it answers through keybearer afterwards, and whether
# `adopt --undo` gave its files back byte for byte. The whole home folder is searched for the keys in between: only
# keybearer's own store may have them. Not a part of npm test.
#
#   npm run build && sh test/clients/real-adopt.sh             all clients
#   npm run build && sh test/clients/real-adopt.sh codex pi    these clients, together in one home folder
#
# It needs what real-clients.sh needs, and shares the installed clients with it. It takes about ten minutes. The result is in
# $KEYBEARER_CLIENTS/results/adopt.json; the exit code is 1 if anything failed. KEYBEARER_KEEP=1 keeps the home folder.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
[ -f "$here/../../dist/cli/main.js" ] || { echo "dist/ is missing: npm run build first" >&2; exit 1; }
folder=${KEYBEARER_CLIENTS:-${TMPDIR:-/tmp}/keybearer-clients}
mkdir -p "$folder"

. "$here/real-clients-install.sh"
[ $# -gt 0 ] || set -- $all
for client in "$@"; do install "$client"; done
without_network node "$here/real-adopt.mjs" "$folder" "$@"
