import type { GatewayStatus } from "../../../../control/status.ts";
import type { LimitStatus, ToolStatus } from "../../../../control/tool-status.ts";
import { advice } from "../../../../core/advice.ts";
import type { Kind } from "../../../../limits/counters.ts";
import { amountToType } from "../../../../limits/format.ts";
import { SETTING_NAMES, SETTINGS } from "../../../settings.ts";
import type { ToolAnswer } from "../../../tools.ts";
import {
  type ActionForm,
  type Choice,
  type Field,
  NAME,
  nameField,
  readAmount,
  type Values,
} from "../../form.ts";
import type { Translate } from "../../messages/messages.ts";

/* What is asked before an action of the tools' pages is planned. */

/** Changes what was changed in the form, and nothing else. */
export function settingsForm(
  tool: Pick<ToolStatus, "name" | "gateway">,
  { settings }: Pick<ToolAnswer, "settings">,
  gateways: readonly FormGateway[],
  t: Translate,
): ActionForm {
  const gateway = gateways.find(({ name }) => name === tool.gateway);
  const fields = SETTING_NAMES.map((name): Field => {
    const initial = settings[name] ?? "";
    if (name === "group") return groupField(gateway, initial, t);
    const hint = t("form.such-as", { example: SETTINGS[name] });
    return { name, label: t(`setting.${name}`), hint, initial };
  });
  return {
    title: t("act.set", { tool: tool.name }),
    fields: () => fields,
    actionFor(values) {
      const changed = Object.entries(values).filter(([name, text]) => text !== (settings[name] ?? ""));
      if (changed.length === 0) return null;
      return { kind: "set", tool: tool.name, settings: Object.fromEntries(changed) };
    },
  };
}

type FormGateway = Pick<GatewayStatus, "name" | "groups" | "makes_keys">;

/** It is typed where config.yaml has no groups of the gateway. */
function groupField(gateway: FormGateway | undefined, initial: string, t: Translate): Field {
  const field = { name: "group", label: t("setting.group"), hint: t("form.group.hint"), initial };
  const names = gateway?.groups ?? [];
  if (names.length === 0) return field;
  return { ...field, choices: [["", t("word.none")], ...names.map((name) => [name, name] as const)] };
}

/** The limits that can be given more of. */
export function liftable(limits: readonly Pick<LimitStatus, "limit">[]): Kind[] {
  const kinds = limits.flatMap(({ limit }) => (limit === "concurrent" || limit === "quota" ? [] : limit));
  return [...new Set(kinds)];
}

interface Liftable extends Pick<LimitStatus, "limit"> {
  /** What the last refused request needed. */
  readonly lift?: number | null;
}

/** How much more of which limit, once. @param session null: of the tool itself */
export function giveForm(
  tool: string,
  session: string | null,
  limits: readonly Liftable[],
  t: Translate,
): ActionForm {
  const kinds = liftable(limits);
  const kindOf = ({ limit }: Values) => kinds.find((each) => each === limit) ?? kinds[0] ?? "spend";
  return {
    title: session === null ? t("form.give", { tool }) : t("form.give-session", { tool, session }),
    fields(typed) {
      const kind = kindOf(typed);
      const needed = limits.find(({ limit }) => limit === kind)?.lift ?? null;
      return [
        { name: "limit", label: t("form.limit"), choices: kinds.map((each) => [each, t(`limit.${each}`)]) },
        {
          name: "amount",
          label: t(kind === "spend" ? "form.dollars" : "form.amount"),
          hint: t("form.such-as", { example: kind === "spend" ? "2.50" : kind === "tokens" ? "400k" : "60" }),
          initial: needed === null ? "" : amountToType(kind, needed),
          check: (text) => (readAmount(kind, text) === null ? t(`form.wrong.${kind}`) : null),
        },
      ];
    },
    actionFor(values) {
      const limit = kindOf(values);
      const amount = readAmount(limit, values.amount ?? "") ?? 0;
      if (session === null) return { kind: "give", tool, limit, amount };
      return { kind: "give-session", tool, session, limit, amount };
    },
  };
}

export function tokenForm(tool: string, t: Translate): ActionForm {
  const hint = t("form.such-as", { example: "laptop" });
  return {
    title: t("form.token", { tool }),
    fields: () => [nameField({ name: "name", label: t("form.token.name"), hint }, t)],
    actionFor: ({ name = "" }) => ({ kind: "token", tool, name }),
  };
}

/** Where the console cannot make the key, or the person has one, a terminal asks for it. */
export function createForm(gateways: readonly FormGateway[], t: Translate): ActionForm {
  const gatewayOf = ({ gateway }: Values) => gateways.find(({ name }) => name === gateway) ?? gateways[0];
  return {
    title: t("form.create"),
    fields(typed) {
      const gateway = gatewayOf(typed);
      const tool = { name: "tool", label: t("word.tool"), hint: t("form.such-as", { example: "codex" }) };
      const keys: Choice[] = [["terminal", t("form.key.terminal")]];
      if (gateway?.makes_keys) keys.unshift(["console", t("form.key.console")]);
      return [
        nameField(tool, t),
        { name: "gateway", label: t("word.gateway"), choices: gateways.map(({ name }) => [name, name]) },
        groupField(gateway, "", t),
        { name: "key", label: t("word.key"), choices: keys },
      ];
    },
    command({ tool = "", gateway = "", group = "", key }) {
      if (key !== "terminal") return null;
      const command = advice.addTool(NAME.test(tool) ? tool : "<name>", gateway);
      return group === "" ? command : `${command} --group ${group}`;
    },
    actionFor: ({ tool = "", gateway = "", group = "" }) => ({ kind: "create", tool, gateway, group }),
  };
}
