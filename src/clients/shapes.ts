import { keyBody } from "../core/redact.ts";
import { keyProblem, Secret } from "../core/secret.ts";
import { tokenShape } from "../core/token.ts";

/*
 * What a text in a settings file is. In a field that holds a key, everything is a key that is not something else: gateways
 * choose the form of their keys. Anywhere else, such as in a line that is commented out, only what has a known form counts.
 *
 * The forms of vendors' keys are after the rules of betterleaks (MIT, Copyright (c) 2026 Zachary Rice), see NOTICE.
 */

/**
 * token: one of keybearer's own. login: of a subscription or a session, which nothing moves. reference: it says where the key
 * is. other: too short, or not a key at all.
 */
export type ValueKind = "key" | "token" | "login" | "reference" | "placeholder" | "other";

/** What the value of a field is that should hold a key. */
export function kindOfValue(value: string): ValueKind {
  if (value.length > MAX_KEY) return "other";
  const text = value.trim();
  if (text === "" || ADDRESS.test(text)) return "other";
  if (tokenShape(text) !== "other") return "token";
  if (REFERENCES.some((form) => form.test(text))) return "reference";
  if (isPlaceholder(text)) return "placeholder";
  if (VARIABLE.test(text)) return "reference";
  if (LOGIN.test(text)) return "login";
  return keyProblem(text) === null ? "key" : "other";
}

/** No key is longer; a JWT may have 2,000 characters. */
const MAX_KEY = 4096;
const ADDRESS = /^https?:\/\//i;

/** Of Claude, GitHub Copilot and Google. They end by themselves, and belong to a person's account. */
const LOGIN = /^(?:sk-ant-(?:oat|ort|sid)\d\d-|gh[ou]_|ya29\.)/;

const REFERENCES = [
  // $X, ${X}, ${env:X}, ${{ secrets.X }}, $(command)
  /^\$[A-Za-z_({]/,
  // {env:X}, {file:x}, {{ x }}
  /^\{(?:env|file|cmd|secret)?[:{]/i,
  /^%[A-Za-z_]\w*%$/,
  // A command, for a shell or for pi.
  /^[`!]/,
  /^(?:op|env|file|keychain|keyring|vault|secret|cmd|exec|bws|doppler|aws-sm|gcp-sm|azure-kv|ref\+\w+):/i,
  // What sops, dotenvx and age have encrypted.
  /^(?:ENC\[|encrypted:|age1|-----BEGIN )/,
  // A file.
  /^~?\/[\w.-]+\//,
];

/** Some fields take the name of a variable instead of a key. */
const VARIABLE = /^[A-Z][A-Z0-9]*_(?:[A-Z0-9]+_)*(?:KEY|TOKEN|SECRET)(?:_[A-Z0-9]+)*$/;

// Placeholders: what programs that need no key are given, and what documentation writes.

const PLACEHOLDER_WORDS: readonly string[] =
  `anonymous any anything apikey apikeyhere blank changeit changeme default demo disabled dummy dummyapikey dummykey
dummytoken dummyvalue empty example fake fakeapikey fakekey faketoken foobar free hidden ignore ignored insertkey key
keyhere litellm llamacpp llamafile lmstudio local localhost localkey localtoken managed mock mockkey myapikey mykey mytoken
na nil noapikey noapikeyneeded noapikeyrequired noauth nokey nokeyneeded nokeyrequired none noneed noneeded nope
notapplicable notarealkey notneeded notprovided notrequired notset notused null ollama openai password placeholder
proxymanaged public redacted removed replaceme required sample secret secretkey tbd test testapikey testing testkey
testtoken todo token tokenabc123 undefined unset unused userprovided vllm whatever`.split(/\s+/);

const PLACEHOLDER_PARTS = [
  /[<>*…•]|\.\.\.|xxxx|XXXX/,
  /(?:^|[-_.])(?:your|replace|changeme|insert|paste|enter|example|dummy|fake|placeholder|redacted)(?:[-_.]|$)/i,
  /(?:^|[-_.])key[-_.]?(?:goes[-_.]?)?here$/i,
  /^(?:sk-)?your(?:api|own|key|token|secret|[A-Z_])|EXAMPLE/,
];

/** How much of a text may go up one by one, as in abc123def456. */
const MAX_ASCENDING = 0.7;

/** Whether a value stands for a key and is none: "ollama", "sk-xxxx", "YOUR_API_KEY", "12345678". */
export function isPlaceholder(text: string): boolean {
  if (PLACEHOLDER_PARTS.some((part) => part.test(text))) return true;
  for (const part of [text, keyBody(text)]) {
    const plain = part.toLowerCase().replace(/[^a-z0-9]/g, "");
    if (plain === "" || PLACEHOLDER_WORDS.includes(plain)) return true;
    if (new Set(plain).size <= 2 || ascendingShare(plain) > MAX_ASCENDING) return true;
  }
  return false;
}

function ascendingShare(text: string): number {
  if (text.length < 4) return 0;
  let steps = 0;
  for (let at = 1; at < text.length; at += 1) {
    const step = text.charCodeAt(at) - text.charCodeAt(at - 1);
    if (step === 1 || text.slice(at - 1, at + 1) === "90") steps += 1;
  }
  return steps / (text.length - 1);
}

// The forms of keys.

/** Shannon entropy in bits per character: 0 for aaaa, 4 at most for hex, 6 for base64. */
export function entropy(text: string): number {
  const counts = new Map<string, number>();
  for (const character of text) counts.set(character, (counts.get(character) ?? 0) + 1);
  let bits = 0;
  for (const count of counts.values()) bits -= (count / text.length) * Math.log2(count / text.length);
  return bits;
}

interface Form {
  /** null: many gateways make such keys. */
  readonly vendor: string | null;
  readonly pattern: RegExp;
  /** Other things look the same, so one of these words must be on the line. null: nothing else looks like this. */
  readonly near: RegExp | null;
}

function form(vendor: string, pattern: RegExp, near: RegExp | null = null): Form {
  return { vendor, pattern, near };
}

/** The first one that fits counts. Each pattern is bounded: a file may be hostile. */
const FORMS: readonly Form[] = [
  form("Anthropic", /^sk-ant-(?:api|admin)\d\d-[\w-]{80,110}$/),
  // In the middle there is "OpenAI" in base64.
  form("OpenAI", /^sk-(?:(?:proj|svcacct|admin)-)?[\w-]{20,74}T3BlbkFJ[\w-]{20,74}$/),
  form("OpenRouter", /^sk-or-v1-[0-9a-f]{64}$/i),
  form("MiniMax", /^sk-api-[\w-]{119}$/i),
  form("Groq", /^gsk_[a-z0-9]{52}$/i),
  form("Cerebras", /^csk-[a-z0-9]{48}$/i),
  form("Perplexity", /^pplx-[a-zA-Z0-9]{48}$/),
  form("xAI", /^xai-[\w-]{70,120}$/i),
  form("Together AI", /^tgp_v1_[\w-]{43}$/i),
  form("NVIDIA", /^nvapi-[\w-]{60,70}$/i),
  form("Hugging Face", /^hf_[a-zA-Z0-9]{34}$/),
  form("Replicate", /^r8_[a-zA-Z0-9]{37}$/),
  form("Vercel AI Gateway", /^vck_[\w-]{56}$/),
  form("Google Gemini", /^AQ\.Ab8RN6[\w-]{44}$/),
  // Maps and other services of Google have the same keys.
  form("Google Gemini", /^AIza[\w-]{35}$/, /gemini|google_(?:gen|ai|api)|generativelanguage/i),
  form("Cursor", /^key_[0-9a-f]{64}$/, /cursor/i),
  form("DeepSeek", /^sk-[0-9a-f]{32}$/, /deepseek/i),
  form("Kimi", /^sk-[\w-]{48}$/, /kimi|moonshot/i),
  form("Ollama", /^[0-9a-f]{32}\.[\w-]{24}$/, /ollama/i),
  form("Z.ai", /^[0-9a-f]{32}\.[a-zA-Z0-9]{16}$/, /z\.?ai|zhipu|bigmodel|glm/i),
  // Hashes have no capitals.
  form("Mistral", /^(?=.*[A-Z])[a-zA-Z0-9]{32}$/, /mistral|codestral/i),
  form("Cohere", /^(?=.*[A-Z])[a-zA-Z0-9]{40}$/, /cohere|\bco_api/i),
  // sub2api, new-api and one-api, LiteLLM, and many others that do the same.
  {
    vendor: null,
    pattern: /^sk-(?:[0-9a-f]{32}|[0-9a-f]{64}|[a-zA-Z0-9]{48}|[\w-]{22})$/,
    near: /key|token|secret|auth|bearer|base_?url/i,
  },
];

/** Less is a word, a pattern or a counter. 32 random hex digits have 3.1 bits at the very least. */
const MIN_ENTROPY = { hex: 3, other: 3.5 };

function isRandom(key: string): boolean {
  const body = keyBody(key);
  if (/^[0-9a-f]+$/i.test(body)) return entropy(body) >= MIN_ENTROPY.hex;
  // Words with hyphens have as many bits, and one kind of letters.
  const kinds = [/[a-z]/, /[A-Z]/, /[0-9]/].filter((kind) => kind.test(body)).length;
  return kinds >= 2 && entropy(body) >= MIN_ENTROPY.other;
}

export interface ShapedKey {
  /** From 1. */
  readonly line: number;
  readonly value: Secret;
  /** null: of a gateway. */
  readonly vendor: string | null;
}

const WORD = /[\w.-]{20,}/g;
/** Longer words are data. */
const MAX_WORD = 300;
/** How far from a key the name of its vendor may be, on the same line. */
const NEAR_BEFORE = 200;
const NEAR_AFTER = 100;

/** Keys of a known form, wherever they are in a text. For lines that are commented out and for fields that are not known. */
export function findKeysByShape(text: string): ShapedKey[] {
  const found: ShapedKey[] = [];
  let line = 1;
  let lineStart = 0;
  // Searched for once a line: a file may be one line of a megabyte.
  let lineEnd = text.indexOf("\n");
  for (const match of text.matchAll(WORD)) {
    while (lineEnd !== -1 && lineEnd < match.index) {
      line += 1;
      lineStart = lineEnd + 1;
      lineEnd = text.indexOf("\n", lineStart);
    }
    if (match[0].length > MAX_WORD) continue;
    const key = keyIn(text, match.index, match[0]);
    if (tokenShape(key) !== "other" || LOGIN.test(key)) continue;
    const end = match.index + match[0].length;
    const around = () =>
      text.slice(Math.max(lineStart, match.index - NEAR_BEFORE), match.index) +
      (text.slice(end, end + NEAR_AFTER).split("\n", 1)[0] ?? "");
    const known = FORMS.find(
      ({ pattern, near }) => pattern.test(key) && (near === null || near.test(around())),
    );
    if (known === undefined || !isRandom(key) || isPlaceholder(key)) continue;
    found.push({ line, value: new Secret(key), vendor: known.vendor });
  }
  return found;
}

/** A word without what does not belong to the key: the n of an escaped line break, hyphens before, and periods. */
function keyIn(text: string, at: number, word: string): string {
  const isEscaped = text[at - 1] === "\\" && /^[nrt]/.test(word);
  return word.slice(isEscaped ? 1 : 0).replace(/^[.-]+|\.+$/g, "");
}
