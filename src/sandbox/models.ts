/** $ per million tokens. */
export interface ModelPrice {
  readonly input: number;
  readonly output: number;
  readonly cacheRead: number;
  readonly cacheWrite: number;
}

export interface Model {
  readonly id: string;
  readonly displayName: string;
  /** What it makes: text, or vectors for the embeddings endpoint. */
  readonly makes: "text" | "vectors";
  /** Thinks before it speaks: the thoughts are billed as output and counted apart. */
  readonly reasons: boolean;
  /** When the model came out, milliseconds since the Unix epoch. */
  readonly releasedAt: number;
  readonly price: ModelPrice;
}

/** Every model of the sandbox. The prefix keeps them from being taken for a real one in a log or a bill. */
export const MODELS: readonly Model[] = [
  {
    id: "sandbox-large",
    displayName: "Sandbox Large",
    makes: "text",
    reasons: false,
    releasedAt: Date.UTC(2026, 0, 15),
    price: { input: 3, output: 15, cacheRead: 0.3, cacheWrite: 3.75 },
  },
  {
    id: "sandbox-small",
    displayName: "Sandbox Small",
    makes: "text",
    reasons: false,
    releasedAt: Date.UTC(2026, 1, 15),
    price: { input: 0.25, output: 1.25, cacheRead: 0.025, cacheWrite: 0.3125 },
  },
  {
    id: "sandbox-code",
    displayName: "Sandbox Code",
    makes: "text",
    reasons: false,
    releasedAt: Date.UTC(2026, 2, 15),
    price: { input: 1.25, output: 10, cacheRead: 0.125, cacheWrite: 1.5625 },
  },
  {
    id: "sandbox-thinker",
    displayName: "Sandbox Thinker",
    makes: "text",
    reasons: true,
    releasedAt: Date.UTC(2026, 3, 15),
    price: { input: 5, output: 25, cacheRead: 0.5, cacheWrite: 6.25 },
  },
  {
    id: "sandbox-embed",
    displayName: "Sandbox Embed",
    makes: "vectors",
    reasons: false,
    releasedAt: Date.UTC(2026, 4, 15),
    price: { input: 0.02, output: 0, cacheRead: 0.02, cacheWrite: 0.02 },
  },
];

export function modelNamed(id: string): Model | null {
  return MODELS.find((model) => model.id === id) ?? null;
}
