import type { Model } from "../models.ts";

/** GET /v1/models. Both official SDKs read it: the one pages by has_more, the other wants object and created. */
export function modelList(models: readonly Model[]): object {
  const data = models.map(modelEntry);
  return {
    object: "list",
    data,
    has_more: false,
    first_id: models[0]?.id ?? null,
    last_id: models.at(-1)?.id ?? null,
  };
}

/** GET /v1/models/M */
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
        model.makes === "text" ? ["generateContent", "streamGenerateContent"] : ["embedContent"],
    })),
  };
}
