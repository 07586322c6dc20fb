#!/bin/sh
# Shows that Claude Code, Codex and opencode answer through keybearer with exactly the settings that `keybearer use` prints.
# They are installed from npm into a temporary folder (about 1 GB), so this is no part of npm test:
#
#   npm run build && sh test/clients/real-clients.sh
#
# A folder whose node_modules has them already may be named as argument. Nothing outside the temporary folder is written,
# no account is needed: the gateway is the sandbox of a first keybearer, which needs port 5397.
set -eu

here=$(cd "$(dirname "$0")/../.." && pwd)
program="$here/dist/cli/main.js"
[ -f "$program" ] || { echo "dist/ is not there: npm run build first" >&2; exit 1; }

temp=$(mktemp -d /tmp/kb-clients.XXXXXX)
pids=""
finish() {
  for pid in $pids; do kill "$pid" 2>/dev/null || true; done
  for pid in $pids; do wait "$pid" 2>/dev/null || true; done
  rm -rf "$temp"
}
trap finish EXIT
trap 'exit 130' INT TERM

clients=${1:-$temp/clients}
if [ $# -eq 0 ]; then
  mkdir -p "$clients"
  # Their install scripts fetch nothing here; what they link is found without them.
  npm install --prefix "$clients" --no-audit --no-fund \
    @anthropic-ai/claude-code @openai/codex opencode-ai@1.18.18 >"$temp/npm.log" 2>&1 ||
    { tail -n 20 "$temp/npm.log" >&2; exit 1; }
fi
bin="$clients/node_modules/.bin"

# until LINE FILE: waits for a line, ten seconds at most.
until_line() {
  tries=0
  until grep -q "$1" "$2" 2>/dev/null; do
    tries=$((tries + 1))
    [ "$tries" -lt 100 ] || { echo "no '$1' within 10 s:" >&2; cat "$2" >&2; exit 1; }
    sleep 0.1
  done
}

# The first keybearer lends its sandbox: the address and the play key stand in the last curl line that it prints.
mkdir -m 700 "$temp/sandbox" "$temp/home" "$temp/kb"
KEYBEARER_HOME="$temp/sandbox" node "$program" run >"$temp/sandbox.out" 2>"$temp/sandbox.log" &
pids="$pids $!"
until_line 'takes over as soon as it is saved' "$temp/sandbox.out"
straight=$(grep '^curl ' "$temp/sandbox.out" | tail -n 1)
gateway=$(printf '%s\n' "$straight" | grep -o 'http://[^ "'"'"']*/v1')
key=$(printf '%s\n' "$straight" | grep -o 'sk-sandbox-[0-9a-f]*')

umask 077
cat >"$temp/kb/config.yaml" <<END
listen: localhost:0
gateway: $gateway
tools:
  claude-code: { key: $key, keys_elsewhere: true }
  codex: { key: $key, keys_elsewhere: true }
  opencode: { key: $key, keys_elsewhere: true }
END
export KEYBEARER_HOME="$temp/kb"
node "$program" run >"$temp/kb.out" 2>"$temp/kb.log" &
pids="$pids $!"
until_line 'serves http://localhost:' "$temp/kb.out"

# place TOOL WAY: writes the printed files of that way below the new home, and the printed lines for sh into env.sh.
place() {
  node "$program" use "$1" --new-token --json >"$temp/use.json" 2>>"$temp/kb.log"
  rm -rf "$temp/home" && mkdir -p "$temp/home/work"
  : >"$temp/env.sh"
  node -e '
    const { mkdirSync, readFileSync, writeFileSync } = require("node:fs");
    const { dirname } = require("node:path");
    const [, from, way, home, env] = process.argv;
    for (const snippet of JSON.parse(readFileSync(from, "utf8")).snippets) {
      if (snippet.way !== Number(way)) continue;
      if (snippet.kind === "env" && snippet.format === "sh") writeFileSync(env, `${snippet.text}\n`);
      if (snippet.kind !== "file") continue;
      const path = snippet.path.replace(/^~/, home);
      mkdirSync(dirname(path), { recursive: true });
      writeFileSync(path, `${snippet.text}\n`);
    }' "$temp/use.json" "$2" "$temp/home" "$temp/env.sh"
}

# answers NAME TOOL WAY COMMAND…: runs the client with nothing else in its environment; it must answer, and leave a
# record with status 200.
answers() {
  name=$1 tool=$2 way=$3
  shift 3
  place "$tool" "$way"
  before=$(records "$tool")
  if ! (cd "$temp/home/work" && env -i PATH="$PATH" HOME="$temp/home" TERM=dumb \
    CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1 \
    sh -c '. "$0"; exec timeout 90 "$@"' "$temp/env.sh" "$@" </dev/null >"$temp/out" 2>"$temp/err"); then
    echo "$name failed:" >&2
    tail -n 20 "$temp/out" "$temp/err" >&2
    exit 1
  fi
  after=$(records "$tool")
  [ -s "$temp/out" ] && [ "$after" -gt "$before" ] ||
    { echo "$name did not answer through keybearer" >&2; cat "$temp/out" "$temp/err" >&2; exit 1; }
  printf '%-32s answered: %s\n' "$name" "$(grep -v '^ *$' "$temp/out" | tail -n 1 | cut -c1-60)"
}

records() {
  node "$program" usage export --tool "$1" |
    node -e 'console.log(JSON.parse(require("node:fs").readFileSync(0)).filter(({ status }) => status === 200).length)'
}

echo "claude $("$bin/claude" --version), $("$bin/codex" --version), opencode $("$bin/opencode" --version)"
answers "Claude Code, by environment" claude-code 0 "$bin/claude" -p "say hi"
answers "Claude Code, by settings.json" claude-code 1 "$bin/claude" -p "say hi"
answers "Codex" codex 0 "$bin/codex" exec --skip-git-repo-check "say hi"
answers "opencode" opencode 0 "$bin/opencode" run "say hi"
