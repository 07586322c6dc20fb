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

install() {
  [ ! -e "$folder/$1/installed" ] || return 0
  mkdir -p "$folder/$1"
  case $1 in
    claude-code) from_npm "$1" @anthropic-ai/claude-code ;;
    codex) from_npm "$1" @openai/codex ;;
    opencode) from_npm "$1" opencode-ai ;;
    qwen-code) from_npm "$1" @qwen-code/qwen-code ;;
    gemini-cli) from_npm "$1" @google/gemini-cli ;;
    copilot-cli) from_npm "$1" @github/copilot ;;
    cline-cli) from_npm "$1" cline ;;
    continue) from_npm "$1" @continuedev/cli ;;
    pi) from_npm "$1" @mariozechner/pi-coding-agent ;;
    # 7.8.1 was published without its Linux binaries.
    kilo-code) from_npm "$1" @kilocode/cli@7.7.7 ;;
    aider) from_pip "$1" aider-chat ;;
    llm) from_pip "$1" llm ;;
    *) echo "no client $1; there are $all" >&2; exit 2 ;;
  esac
}

from_npm() {
  if npm install --prefix "$folder/$1" --no-audit --no-fund "$2" >"$folder/$1.log" 2>&1
  then touch "$folder/$1/installed"
  else echo "$1: not installed, see $folder/$1.log" >&2
  fi
}

from_pip() {
  if python3 -m venv "$folder/$1" && "$folder/$1/bin/pip" install "$2" >"$folder/$1.log" 2>&1
  then touch "$folder/$1/installed"
  else echo "$1: not installed, see $folder/$1.log" >&2
  fi
}

all="claude-code codex opencode qwen-code gemini-cli copilot-cli cline-cli continue pi aider llm kilo-code"
[ $# -gt 0 ] || set -- $all
for client in "$@"; do
  install "$client"
  # The process namespace ends what a client leaves running in the background.
  unshare --user --map-root-user --net --pid --fork --kill-child --mount-proc \
    sh -c 'ip link set lo up && exec node "$@"' sh "$here/real-clients.mjs" run "$client" "$folder"
done
node "$here/real-clients.mjs" table "$folder"
