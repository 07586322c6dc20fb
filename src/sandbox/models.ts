/** In dollars per million tokens. */
export interface ModelPrice {
  readonly input: number;
  readonly output: number;
  readonly cacheRead: number;
  readonly cacheWrite: number;
}

export interface Model {
  readonly id: string;
  readonly displayName: string;
  /** Vectors are what the embeddings endpoint returns. */
  readonly produces: "text" | "vectors";
  /** Reasoning tokens are billed as output and also reported separately. */
  readonly reasons: boolean;
  /** Milliseconds since the Unix epoch. */
  readonly releasedAt: number;
  readonly price: ModelPrice;
}

/** The prefix keeps them from being mistaken for real models in a log or a bill. */
export const MODELS: readonly Model[] = [
  {
    id: "sandbox-large",
    displayName: "Sandbox Large",
    produces: "text",
    reasons: false,
    releasedAt: Date.UTC(2026, 0, 15),
    price: { input: 3, output: 15, cacheRead: 0.3, cacheWrite: 3.75 },
  },
  {
    id: "sandbox-small",
    displayName: "Sandbox Small",
    produces: "text",
    reasons: false,
    releasedAt: Date.UTC(2026, 1, 15),
    price: { input: 0.25, output: 1.25, cacheRead: 0.025, cacheWrite: 0.3125 },
  },
  {
    id: "sandbox-code",
    displayName: "Sandbox Code",
    produces: "text",
    reasons: false,
    releasedAt: Date.UTC(2026, 2, 15),
    price: { input: 1.25, output: 10, cacheRead: 0.125, cacheWrite: 1.5625 },
  },
  {
    id: "sandbox-thinker",
    displayName: "Sandbox Thinker",
    produces: "text",
    reasons: true,
    releasedAt: Date.UTC(2026, 3, 15),
    price: { input: 5, output: 25, cacheRead: 0.5, cacheWrite: 6.25 },
  },
  {
    id: "sandbox-embed",
    displayName: "Sandbox Embed",
    produces: "vectors",
    reasons: false,
    releasedAt: Date.UTC(2026, 4, 15),
    price: { input: 0.02, output: 0, cacheRead: 0.02, cacheWrite: 0.02 },
  },
];

/** GET /v1/models, for both official SDKs: Anthropic's pages by `has_more`, OpenAI's needs `object` and `created`. */
export function modelList(models: readonly Model[]): object {
  return {
    object: "list",
    data: models.map(modelEntry),
    has_more: false,
    first_id: models[0]?.id ?? null,
    last_id: models.at(-1)?.id ?? null,
  };
}

/** GET /v1/models/<id> */
export function modelEntry(model: Model): object {
  return {
    id: model.id,
    object: "model",
    type: "model",
    created: Math.floor(model.releasedAt / 1000),
    created_at: new Date(model.releasedAt).toISOString(),
    owned_by: "keybearer-sandbox",
    display_name: model.displayName,
  };
}

/** GET /v1beta/models */
export function geminiModelList(models: readonly Model[]): object {
  return {
    models: models.map((model) => ({
      name: `models/${model.id}`,
      version: "1",
      displayName: model.displayName,
      supportedGenerationMethods:
        model.produces === "text" ? ["generateContent", "streamGenerateContent"] : ["embedContent"],
    })),
  };
}
