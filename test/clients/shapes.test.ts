import { randomBytes } from "node:crypto";
import fc from "fast-check";
import t from "tap";
import { entropy, findKeysByShape, kindOfValue } from "../../src/clients/shapes.ts";
import { makeToken } from "../../src/core/token.ts";
import { runs } from "../doubles/effort.ts";

const BASE62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/** Random characters, with all three kinds among them. */
function random(length: number, letters = BASE62): string {
  const text = Array.from(randomBytes(length), (byte) => letters[byte % letters.length]).join("");
  return letters === BASE62 ? `aB3${text.slice(3)}` : text;
}

function hex(length: number): string {
  return `0a7f3c${randomBytes(length).toString("hex")}`.slice(0, length);
}

const KEYS: Readonly<Record<string, string>> = {
  Anthropic: `sk-ant-api03-${random(93)}AA`,
  OpenAI: `sk-proj-${random(74)}T3BlbkFJ${random(74)}`,
  OpenRouter: `sk-or-v1-${hex(64)}`,
  MiniMax: `sk-api-${random(119)}`,
  Groq: `gsk_${random(52)}`,
  Cerebras: `csk-${random(48).toLowerCase()}`,
  Perplexity: `pplx-${random(48)}`,
  xAI: `xai-${random(80)}`,
  "Together AI": `tgp_v1_${random(43)}`,
  NVIDIA: `nvapi-${random(64)}`,
  "Hugging Face": `hf_${random(34)}`,
  Replicate: `r8_${random(37)}`,
  "Vercel AI Gateway": `vck_${random(56)}`,
  "Google Gemini": `AQ.Ab8RN6${random(44)}`,
};

/** With a word that must stand beside it. */
const KEYS_WITH_NAME: readonly (readonly [vendor: string | null, key: string, line: string])[] = [
  ["Google Gemini", `AIza${random(35)}`, "GEMINI_API_KEY=$"],
  ["Cursor", `key_${hex(64)}`, "cursor: $"],
  ["DeepSeek", `sk-${hex(32)}`, "# DEEPSEEK_API_KEY=$"],
  ["Kimi", `sk-${random(48)}`, "MOONSHOT_API_KEY=$"],
  ["Ollama", `${hex(32)}.${random(24)}`, "OLLAMA_API_KEY=$"],
  ["Z.ai", `${hex(32)}.${random(16)}`, "ZAI_API_KEY=$"],
  ["Mistral", random(32), "MISTRAL_API_KEY=$"],
  ["Cohere", random(40), "CO_API_KEY=$"],
  // sub2api, new-api and LiteLLM.
  [null, `sk-${hex(64)}`, "#export ANTHROPIC_AUTH_TOKEN=$"],
  [null, `sk-${random(48)}`, '// "apiKey": "$",'],
  [null, `sk-${random(22)}`, "; base_url=http://x key=$"],
];

t.test("a key of a vendor's form is found anywhere in a text, with its line and its vendor", async (t) => {
  for (const [vendor, key] of Object.entries(KEYS)) {
    for (const around of ["# $", 'x = "$" # y', "a=1 b=$;", "say $.", String.raw`"text\n$\n"`, "x $"]) {
      const text = `first\r\n\n${around.replace("$", key)}\nlast`;
      const found = findKeysByShape(text);
      t.equal(found.length, 1, `${vendor} in ${around}`);
      t.match(found[0], { line: 3, vendor });
      t.equal(found[0]?.value.fingerprint, `…${key.slice(-4)}`);
    }
  }
});

t.test("a form that other things have, too, needs a name on the same line", async (t) => {
  for (const [vendor, key, line] of KEYS_WITH_NAME) {
    t.match(findKeysByShape(`x\n${line.replace("$", () => key)}\n`), [{ line: 2, vendor }], line);
    t.same(
      findKeysByShape(`${line.replace("$", "")}\nid ${key}\n${line.replace("$", "")}`),
      [],
      "not beside it",
    );
  }
});

t.test("a name counts also behind the key, but not far away on a long line", async (t) => {
  const key = `sk-${hex(32)}`;
  t.equal(findKeysByShape(`${key} # deepseek`)[0]?.vendor, "DeepSeek");
  t.same(findKeysByShape(`deepseek ${"- ".repeat(200)}${key}`), []);
});

t.test("what is no key has no form: tokens, logins, words, patterns, hashes, ids", async (t) => {
  const texts = [
    `key=${makeToken()}`,
    `token: sk-ant-oat01-${random(93)}AA`,
    `key: sk-${"a".repeat(48)}`,
    `key: sk-${"0123456789abcdef".repeat(4)}`,
    `key: sk-${"deadbeef".repeat(8)}`,
    "secret: sk-circle-fade-dots-x",
    "token: sk-this-is-only-words-yes-it-is-and-more-of-them-indeed",
    `mistral: ${hex(32)}`,
    `cohere: ${hex(40)}`,
    "sha512-Fq7kX0T1mYcWZ5l9v3b8NdHsRj2UoPqA4eGiKyLtMnBfVxCzQwErTyUiOp==",
    "3b2e9a70-1111-4c5e-9d55-123456789abc claude-sonnet-4-5-20250929",
    `gsk_${random(53)}`,
  ];
  for (const text of texts) t.same(findKeysByShape(text), [], text);
});

t.test("long lines and long words take no longer than their length", async (t) => {
  const key = KEYS.Groq ?? "";
  const line = `${"word_that_is_long_enough ".repeat(40_000)}${key}${" sk-nokey-nokey-nokey-no".repeat(40_000)}`;
  t.match(findKeysByShape(line), [{ line: 1, vendor: "Groq" }]);
  for (const part of ["-", ".", "sk-", "sk-ant-api03-", "T3BlbkFJ"])
    t.same(findKeysByShape(`${part.repeat(1_000_000 / part.length)} key`), []);
});

t.test("in the field of a key everything is a key that is not something else", async (t) => {
  const keys = [
    ...Object.values(KEYS),
    ...KEYS_WITH_NAME.map(([, key]) => key),
    "letmein-4711",
    "Hq2WcYt6",
    "550e8400-e29b-41d4-a716-446655440000",
    `my-secret-key-${hex(8)}`,
    `eyJhbGciOiJIUzI1NiJ9.${random(40)}.${random(43)}`,
    `  sk-${random(48)}\n`,
  ];
  for (const key of keys) t.equal(kindOfValue(key), "key", key);
});

t.test("placeholders are those of programs that need no key, and those of documentation", async (t) => {
  const placeholders = [
    ..."none dummy ollama lm-studio lmstudio LM_STUDIO not-needed NOT_NEEDED EMPTY sk-xxxx sk-xxxxxxxxxxxxxxxx".split(
      " ",
    ),
    ..."sk-no-key-required no-key not-provided user_provided DUMMY_KEY token-abc123 sk-1234 sk-12345678".split(
      " ",
    ),
    ..."PROXY_MANAGED proxy-managed changeme sk-... sk-**** sk-abc***def <your-key> YOUR_API_KEY".split(" "),
    ..."your-api-key sk-your-key-here sk-ant-your-key put-your-key-here api-key-here sk-ant-api03-...".split(
      " ",
    ),
    ..."AKIAIOSFODNN7-EXAMPLE 00000000 aaaaaaaaaaaaaaaa sk-0000000000000000 sk-placeholder null undefined".split(
      " ",
    ),
    ..."sk-1234567890abcdef abcdefghijklmnop abc123def456ghi789 xxx-xxx-xxx test-key fake_key password".split(
      " ",
    ),
    "sk-…",
    "••••••••",
  ];
  for (const text of placeholders) t.equal(kindOfValue(text), "placeholder", text);
});

t.test(
  "references, tokens and logins are told apart, and what is too short or an address is no key",
  async (t) => {
    const cases: Readonly<Record<string, readonly string[]>> = {
      reference: [
        "$OPENAI_API_KEY",
        "$".concat("{OPENAI_API_KEY}"),
        "$".concat("{env:OPENAI_API_KEY}"),
        "$".concat("{{ secrets.OPENAI_API_KEY }}"),
        "$(pass)",
        "{env:OPENAI_API_KEY}",
        "{file:~/.key}",
        "{{ key }}",
        "%OPENAI_API_KEY%",
        "$(pass show x)",
        "`pass show x`",
        "!security find-generic-password -ws x",
        "op://vault/item/key",
        "env:OPENAI_API_KEY",
        "ENC[AES256]",
        "encrypted:BDqvTQ==",
        "OPENAI_API_KEY",
        "MY_GATEWAY_TOKEN",
        "/run/secrets/openai",
        "~/.keys/openai",
      ],
      token: [makeToken(), "kb_incomplete"],
      login: [`sk-ant-oat01-${random(93)}AA`, `gho_${random(36)}`, `ya29.${random(80)}`],
      other: [
        "",
        " ",
        "secret7",
        "two words here",
        "https://gateway.example.com/v1",
        "schlüssel-47",
        "a".repeat(5000),
      ],
    };
    for (const [kind, texts] of Object.entries(cases))
      for (const text of texts) t.equal(kindOfValue(text), kind, text.slice(0, 50));
  },
);

t.test("entropy is that of Shannon", async (t) => {
  t.equal(entropy(""), 0);
  t.equal(entropy("aaaa"), 0);
  t.equal(entropy("abab"), 1);
  t.equal(entropy("0123456789abcdef"), 4);
});

t.test("random keys are never taken for placeholders", async (t) => {
  const wrong = [];
  for (let at = 0; at < runs(6000); at += 1) {
    const key = `sk-${random(22 + (at % 40), `${BASE62}-_`)}`;
    // One of 100,000 holds this by chance.
    if (kindOfValue(key) !== "key" && !/xxxx|XXXX/.test(key)) wrong.push(key);
  }
  t.same(wrong, []);
});

t.test("any text is safe to look at", async () => {
  fc.assert(
    fc.property(fc.string({ unit: "binary", maxLength: 300 }), (text) => {
      kindOfValue(text);
      findKeysByShape(text);
    }),
    { numRuns: runs(300) },
  );
});
