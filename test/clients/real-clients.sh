#!/bin/sh
# Runs real clients through keybearer, with the settings that `keybearer use` prints or writes, and prints a table: for each
# client, what it shows when all is well, with a dead token, when the gateway refuses the key or is down, at a limit, with a
# long prompt, and when the key is rotated or keybearer restarted in the middle of a stream. Not a part of npm test.
#
#   npm run build && sh test/clients/real-clients.sh             all clients
#   npm run build && sh test/clients/real-clients.sh codex pi    these clients
#
# It needs Linux (unshare, ip), npm, python3 with venv, 5 GB and about five minutes per client. Use Node 22 or newer: with an
# older one npm installs older versions of some clients. No account is needed. Clients are installed into
# $KEYBEARER_CLIENTS (default: keybearer-clients in the folder for temporary files) and run in a network namespace that has
# only loopback, so they reach keybearer and nothing else. Results are in its results/<client>.json. A second call runs only
# what has no result yet for the client's version; to repeat a client, delete its file.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
[ -f "$here/../../dist/cli/main.js" ] || { echo "dist/ is missing: npm run build first" >&2; exit 1; }
folder=${KEYBEARER_CLIENTS:-${TMPDIR:-/tmp}/keybearer-clients}
mkdir -p "$folder"

. "$here/real-clients-install.sh"
[ $# -gt 0 ] || set -- $all
for client in "$@"; do
  install "$client"
  without_network node "$here/real-clients.mjs" run "$client" "$folder"
done
node "$here/real-clients.mjs" table "$folder"
