interface CommandExamples {
  /** For the list of commands, if the description is too long for it. */
  readonly summary?: string;
  /** Empty if the command's own description has them. */
  readonly examples: readonly string[];
}

/**
 * What each command's help shows beside its options, by what is typed after `keybearer`. At most 78 columns wide, and few
 * enough lines that the help fits a terminal of 24.
 */
export const EXAMPLES: Readonly<Record<string, CommandExamples>> = {
  run: {
    summary: "serve in the foreground; without config.yaml: the sandbox",
    examples: ["keybearer run", "keybearer run --config ./config.yaml"],
  },
  start: {
    summary: "start the installed service, else in the background",
    examples: ["keybearer start", "keybearer start --config ./config.yaml"],
  },
  stop: { examples: ["keybearer stop"] },
  logs: { examples: ["keybearer logs -f", "keybearer logs -n 200 --json"] },
  check: { examples: ["keybearer check", "keybearer check ./new.yaml --json"] },
  config: { examples: ["keybearer config edit"] },
  "config edit": {
    summary: "edit config.yaml; it is checked before it is saved",
    examples: ["keybearer config edit", "EDITOR=nano keybearer config edit"],
  },
  adopt: {
    examples: ["keybearer adopt", "keybearer adopt ~/code/app --write", "keybearer adopt --undo codex"],
  },
  status: { examples: ["keybearer status", "keybearer status --json | jq .tools"] },
  doctor: {
    summary: "check everything, and say how to fix what is wrong",
    examples: ["keybearer doctor", "keybearer doctor --json | jq '.findings[] | .what'"],
  },
  tools: { examples: ["keybearer tools", "keybearer tools add codex", "keybearer help tools lift"] },
  "tools list": { examples: ["keybearer tools", "keybearer tools list --json"] },
  "tools add": { summary: "add a tool: its key, its limits, its token", examples: [] },
  "tools rotate": { summary: "give a tool a new key", examples: [] },
  "tools token": {
    summary: "add a token for one more client and print it once",
    examples: ["keybearer tools token codex", "keybearer tools token codex --name laptop"],
  },
  "tools tokens": { examples: ["keybearer tools tokens codex", "keybearer tools tokens codex --json"] },
  "tools revoke": { examples: ["keybearer tools revoke codex laptop"] },
  "tools set": {
    summary: "change settings of a tool in config.yaml",
    examples: ["keybearer tools set codex limits.spend=5/day,60/month", "keybearer tools set codex quota="],
  },
  "tools rename": { examples: ["keybearer tools rename codex codex-work"] },
  "tools disable": {
    summary: "refuse a tool's requests from now on",
    examples: ["keybearer tools disable codex --now", "keybearer tools disable codex --at-gateway"],
  },
  "tools enable": { examples: ["keybearer tools enable codex", "keybearer tools enable codex --at-gateway"] },
  "tools remove": {
    summary: "remove a tool and its key",
    examples: ["keybearer tools remove codex --at-gateway", "keybearer tools remove codex --now --yes"],
  },
  "tools lift": {
    summary: "give a tool one extra allowance",
    examples: [
      "keybearer tools lift codex --spend 5",
      "keybearer tools lift codex --tokens 200k --until 18:00",
    ],
  },
  use: {
    summary: "the settings that point a client at keybearer",
    examples: ["keybearer use claude-code --write", "keybearer use scripts --for openai-python --new-token"],
  },
  gateways: {
    examples: ["keybearer gateways", "keybearer gateways add work https://gateway.example.com/v1"],
  },
  "gateways list": { examples: ["keybearer gateways", "keybearer gateways list --json"] },
  "gateways add": { examples: ["keybearer gateways add work https://gateway.example.com/v1"] },
  models: {
    summary: "the models that a tool can use, and names that fail",
    examples: ["keybearer models", "keybearer models --tool codex --json"],
  },
  keys: {
    summary: "the console's keys, and the tools that hold them",
    examples: ["keybearer keys", "keybearer keys delete old-laptop"],
  },
  "keys list": { examples: ["keybearer keys list --refresh", "keybearer keys list --json"] },
  "keys disable": { examples: ["keybearer keys disable old-laptop"] },
  "keys enable": { examples: ["keybearer keys enable old-laptop"] },
  "keys delete": { examples: ["keybearer keys", "keybearer keys delete old-laptop"] },
  trust: { examples: ["keybearer status", "keybearer trust codex", "keybearer trust notify"] },
  usage: { examples: ["keybearer usage --by day,tool --since 30d"] },
  "usage export": {
    examples: [
      "keybearer usage export --since 2026-11 --csv -o november.csv",
      "keybearer usage export --tool codex --jsonl",
    ],
  },
  "usage show": { examples: ["keybearer usage show last", "keybearer usage show 01JC8 --json"] },
  "usage ack-model": { examples: ["keybearer usage ack-model gpt-5.1 gpt-5.1-mini"] },
  "usage rebuild": { examples: ["keybearer usage rebuild"] },
  "usage tail": { examples: ["keybearer usage tail", "keybearer usage tail -n 0 --json"] },
  sessions: { examples: ["keybearer sessions", "keybearer sessions show 3f2a91c0"] },
  "sessions list": {
    examples: ["keybearer sessions list --all", "keybearer sessions list --project ~/code/app --json"],
  },
  "sessions show": {
    examples: ["keybearer sessions show 3f2a91c0", "keybearer sessions show 2026-11-19/laptop --json"],
  },
  "sessions stop": { examples: ["keybearer sessions stop 3f2a91c0"] },
  "sessions allow": { examples: ["keybearer sessions allow 3f2a91c0"] },
  "sessions lift": {
    examples: ["keybearer sessions lift 3f2a91c0 --spend 5", "keybearer sessions lift 3f2a91c0 --take-back"],
  },
  events: { examples: ["keybearer events", "keybearer events list --follow", "keybearer help events mute"] },
  "events list": {
    examples: ["keybearer events list --all", "keybearer events list --follow --json | jq .message"],
  },
  "events mute": {
    summary: "send no events of a tool or gateway for some time",
    examples: ["keybearer events mute tool codex --for 8h", "keybearer events mute tool codex --off"],
  },
  mirror: { examples: ["keybearer mirror", "keybearer mirror sync && keybearer mirror diff"] },
  "mirror login": { examples: ["keybearer mirror login", "keybearer mirror login main --refresh-token"] },
  "mirror sync": { examples: ["keybearer mirror sync", "keybearer mirror sync main"] },
  "mirror diff": { examples: ["keybearer mirror diff", "keybearer mirror diff main --json"] },
  "mirror show": { examples: ["keybearer mirror diff", "keybearer mirror show 4711"] },
  "mirror ack": { examples: ["keybearer mirror", "keybearer mirror ack main"] },
  notify: { examples: ["keybearer notify test"] },
  "notify test": {
    summary: "send a test to each channel, or to one",
    examples: ["keybearer notify test", "keybearer notify test desktop"],
  },
  metrics: { examples: ["keybearer metrics token"] },
  "metrics token": {
    examples: [
      "keybearer metrics token",
      "keybearer metrics token | sudo tee /etc/prometheus/keybearer-token",
    ],
  },
  service: {
    summary: "start it at login and after a crash: install, status, logs",
    examples: ["keybearer service install", "keybearer service status", "keybearer help service logs"],
  },
  "service install": {
    summary: "install it, start it, and wait until it answers",
    examples: [
      "keybearer service install",
      "keybearer service install --dry-run",
      "sudo keybearer service install --system --owner alice",
    ],
  },
  "service uninstall": {
    summary: "stop and remove it; config.yaml and data stay",
    examples: ["keybearer service uninstall", "keybearer service uninstall --purge"],
  },
  "service status": {
    summary: "whether it is installed, runs and answers",
    examples: ["keybearer service status", "keybearer service status --json | jq .notes"],
  },
  "service restart": {
    summary: "restart it, once its requests have finished",
    examples: ["keybearer check && keybearer service restart"],
  },
  "service update": {
    summary: "run the version of the system service that is installed now",
    examples: ["sudo keybearer service update --system"],
  },
  "service logs": { examples: ["keybearer service logs -f", "keybearer service logs -n 200 --json"] },
  confirm: { examples: ["keybearer confirm"] },
  open: {
    summary: "open the dashboard in the browser",
    examples: ["keybearer open", "keybearer open --print", "keybearer open --list"],
  },
  completion: {
    examples: [
      'eval "$(keybearer completion bash)"          # in ~/.bashrc',
      'eval "$(keybearer completion zsh)"           # in ~/.zshrc, after compinit',
      "keybearer completion fish > ~/.config/fish/completions/keybearer.fish",
    ],
  },
};
