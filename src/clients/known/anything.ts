import { ANY, CLAUDE, type Client, KEYBEARER_TOKEN } from "../client.ts";

/** For what is not in the list. */
export const ANYTHING: readonly Client[] = [
  {
    id: "curl",
    name: "curl",
    label: "the URL",
    where: "the command line",
    base: "v1",
    keyLabel: "Authorization: Bearer",
    modelLabel: '"model" in the body',
    ways: [
      [
        { kind: "env", set: [KEYBEARER_TOKEN] },
        {
          kind: "command",
          format: "sh",
          text: `curl {base}/models -H "Authorization: Bearer $KEYBEARER_TOKEN"
curl -N {base}/chat/completions \\
  -H "Authorization: Bearer $KEYBEARER_TOKEN" \\
  -H 'content-type: application/json' \\
  -d '{"model":"{model}","messages":[{"role":"user","content":"hi"}]}'`,
        },
      ],
    ],
    notes: [],
    prefers: ANY,
    unusable: null,
  },
  {
    id: "openai-compatible",
    name: "anything that takes an OpenAI-style address",
    label: "Base URL",
    where: "also called API Host, API address, endpoint, interface address, provider URL",
    base: "v1",
    keyLabel: "API Key",
    modelLabel: "Model",
    ways: [
      [
        {
          kind: "env",
          set: [
            ["OPENAI_BASE_URL", "{base}"],
            ["OPENAI_API_KEY", "{token}"],
          ],
        },
      ],
    ],
    notes: [
      "never the whole path: no /chat/completions behind it. a wrong address is answered with the right one in words.",
    ],
    prefers: ANY,
    unusable: null,
  },
  {
    id: "messages-compatible",
    name: "anything that takes a messages-style address",
    label: "Base URL",
    where: "also called API Host, API address, endpoint",
    base: "root",
    keyLabel: "API Key",
    modelLabel: "Model",
    ways: [
      [
        {
          kind: "env",
          set: [
            ["ANTHROPIC_BASE_URL", "{base}"],
            ["ANTHROPIC_API_KEY", "{token}"],
          ],
          unset: ["ANTHROPIC_AUTH_TOKEN"],
        },
      ],
    ],
    notes: [
      "some add only /messages, and want {v1}: a wrong address is answered with the right one in words.",
    ],
    prefers: CLAUDE,
    unusable: null,
  },
  {
    id: "url-only",
    name: "anything that cannot send a header",
    label: "Base URL",
    where: "with the token in it; needs token_in_url: true for the tool",
    base: "v1",
    keyLabel: "none: leave it empty, or put the token there again",
    modelLabel: "Model",
    ways: [],
    notes: ["an address is shown and kept in more places than a header: prefer a client that can send one."],
    prefers: ANY,
    unusable: null,
  },
];
