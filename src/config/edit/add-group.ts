import { isDeepStrictEqual } from "node:util";
import { isMap, isNode, isScalar, type Pair, type YAMLMap } from "yaml";
import { refuse, type Spliced } from "./splice.ts";
import {
  append,
  applyEdit,
  contentEnd,
  type Edit,
  isEmpty,
  lineBreak,
  lineEnd,
  pairsOf,
  readForEdit,
  setValue,
  sourceOf,
  startOf,
  type Tree,
  treeOf,
} from "./yaml-edit.ts";
import { quotedName } from "./yaml-text.ts";

type YamlMap = YAMLMap<unknown, unknown>;
type Entries = readonly (readonly [Tree, Tree])[];

/**
 * Writes a group below a gateway: all models, multiplier 1, until the person says otherwise. `gateway: URL` has no
 * room for groups, and becomes `gateways:` with one called main.
 */
export function addGroup(text: string, gateway: string, group: string): Spliced {
  const root = readForEdit(text)?.contents;
  if (!isMap(root)) return refuse("config.yaml cannot be edited as it is: run `keybearer check`");
  const [short] = pairsOf(root, "gateway");
  const edit = short === undefined ? below(text, root, gateway, group) : spelledOut(text, root, short, group);
  const edited = edit === null ? null : applyEdit(text, edit);
  const doc = edited === null ? null : readForEdit(edited);
  const wanted = wantedTree(treeOf(root), gateway, group);
  if (edited === null || doc === null || !isDeepStrictEqual(treeOf(doc.contents), wanted)) {
    const reason = "config.yaml is written in a way that this edit cannot follow safely";
    const lines = `gateways.${gateway}.groups: { ${quotedName(group)}: {} }`;
    return refuse(`${reason}: write the group by hand\n  ${lines}`);
  }
  return { ok: true, text: edited };
}

function below(text: string, root: YamlMap, name: string, group: string): Edit | null {
  const gateways = pairsOf(root, "gateways")[0]?.value;
  const gateway = isMap(gateways) ? pairsOf(gateways, name)[0]?.value : undefined;
  if (!isMap(gateway)) return null;
  const item = `${quotedName(group)}: {}`;
  const [groups] = pairsOf(gateway, "groups");
  if (groups === undefined) return append(text, gateway, `groups: { ${item} }`);
  if (isMap(groups.value)) return append(text, groups.value, item);
  return isEmpty(groups.value) ? setValue(text, groups, `{ ${item} }`) : null;
}

/** The comment behind the address stays behind it. */
function spelledOut(text: string, root: YamlMap, pair: Pair<unknown, unknown>, group: string): Edit | null {
  const { key, value } = pair;
  if (root.flow === true || !isNode(key) || !isScalar(value) || isEmpty(value)) return null;
  const [eol, end] = [lineBreak(text, 0), lineEnd(text, contentEnd(text, value))];
  const rest = text.slice(contentEnd(text, value), end);
  const lines = [
    "gateways:",
    "  main:",
    `    base_url: ${sourceOf(text, value)}${rest}`,
    `    groups: { ${quotedName(group)}: {} }`,
  ];
  return { start: startOf(key), end, text: lines.join(eol) };
}

function wantedTree(tree: Tree, gateway: string, group: string): Tree {
  const made: readonly [Tree, Tree] = [group, { entries: [] }];
  return {
    entries: entriesOf(tree).map(([key, was]) => {
      if (key === "gateway")
        return [
          "gateways",
          named("main", [
            ["base_url", was],
            ["groups", { entries: [made] }],
          ]),
        ] as const;
      if (key !== "gateways") return [key, was] as const;
      const gateways = entriesOf(was).map(
        ([name, old]) => [name, name === gateway ? withGroup(old, made) : old] as const,
      );
      return [key, { entries: gateways }] as const;
    }),
  };
}

function withGroup(gateway: Tree, made: readonly [Tree, Tree]): Tree {
  const entries = entriesOf(gateway);
  if (!entries.some(([key]) => key === "groups"))
    return { entries: [...entries, ["groups", { entries: [made] }]] };
  return {
    entries: entries.map(
      ([key, was]) => [key, key === "groups" ? { entries: [...entriesOf(was), made] } : was] as const,
    ),
  };
}

function named(name: string, entries: Entries): Tree {
  return { entries: [[name, { entries }]] };
}

function entriesOf(tree: Tree): Entries {
  return typeof tree !== "string" && "entries" in tree ? tree.entries : [];
}
