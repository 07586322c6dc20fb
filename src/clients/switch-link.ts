import type { Client } from "./client.ts";
import { fieldsFor, plainModel, type Target } from "./snippet.ts";

/**
 * The link by which cc-switch takes over a client's settings in one click. It takes the endpoint as it is, adds no /v1,
 * and allows http to localhost. It is not switched to at once (`enabled`): the person chooses when.
 */
export function switchLink(
  client: Client,
  tool: string,
  target: Target & { readonly token: string },
): string | null {
  if (client.app === undefined) return null;
  const { baseUrl } = fieldsFor(client, target);
  const link = new URL("ccswitch://v1/import");
  const model = plainModel(target.model);
  const small = plainModel(target.small ?? null);
  const query = {
    resource: "provider",
    app: client.app,
    name: `keybearer ${tool}`,
    endpoint: baseUrl,
    apiKey: target.token,
    ...(model === null ? {} : { model }),
    ...(client.app === "claude" && small !== null ? { haikuModel: small } : {}),
  };
  // %20 instead of +: a parser of deep links need not know the rules of forms.
  link.search = Object.entries(query)
    .map(([name, value]) => `${name}=${encodeURIComponent(value)}`)
    .join("&");
  return link.href;
}
