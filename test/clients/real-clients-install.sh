# Installs real clients into $folder/<client>, for real-clients.sh and real-adopt.sh, which read this file with `.`

all="claude-code codex opencode qwen-code gemini-cli copilot-cli cline-cli continue pi aider llm goose kilo-code"

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
    # Its program for Linux on x64. Other machines have packages of their own.
    goose) from_npm "$1" @aaif/goose-binary-linux-x64 ;;
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

# Runs a program where it reaches only this machine. The process namespace ends what a client leaves in the background.
without_network() {
  unshare --user --map-root-user --net --pid --fork --kill-child --mount-proc \
    sh -c 'ip link set lo up && exec "$@"' sh "$@"
}
