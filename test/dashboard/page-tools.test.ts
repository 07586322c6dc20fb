import t from "tap";
import type { LimitStatus } from "../../src/control/tool-status.ts";
import { type Sortable, sortRows } from "../../src/dashboard/page/components/sort-rows.ts";
import { readAmount } from "../../src/dashboard/page/form.ts";
import { fullest } from "../../src/dashboard/page/limits.ts";
import { createTranslate } from "../../src/dashboard/page/messages/messages.ts";
import { createForm, giveForm, settingsForm, tokenForm } from "../../src/dashboard/page/pages/tools/forms.ts";

const en = createTranslate("en");

t.test("a table is sorted by the column that the address names, and what is unknown comes last", (t) => {
  const columns: Sortable<Row>[] = [
    { id: "name", sortBy: ({ name }: Row) => name },
    { id: "cost", sortBy: ({ cost }: Row) => cost },
    { id: "plain" },
  ];
  const rows = [row("b10", 1), row("b9", null), row("a", 20)];
  const order = (sort: string | null) => sortRows(rows, columns, sort).map(({ name }) => name);
  t.same(order(null), ["b10", "b9", "a"]);
  t.same(order("name"), ["a", "b9", "b10"], "numbers in a name count as numbers");
  t.same(order("-name"), ["b10", "b9", "a"]);
  t.same(order("cost"), ["b10", "a", "b9"]);
  t.same(order("-cost"), ["a", "b10", "b9"]);
  for (const unknown of ["plain", "-plain", "gone", "", "-"]) t.same(order(unknown), order(null), unknown);
  t.end();
});

interface Row {
  readonly name: string;
  readonly cost: number | null;
}

function row(name: string, cost: number | null): Row {
  return { name, cost };
}

t.test("an amount is read as it is typed in config.yaml, and nothing else is one", (t) => {
  for (const [limit, text, amount] of [
    ["spend", "2.50", 2_500_000],
    ["spend", "$5", 5_000_000],
    ["spend", "0.000001", 1],
    ["requests", "60", 60],
    ["tokens", "400k", 400_000],
    ["tokens", "1.5M", 1_500_000],
    ["requests", "1.5", null],
    ["spend", "5k", null],
    ["spend", "0", null],
    ["tokens", "-1", null],
    ["tokens", "1e9", null],
    ["requests", "", null],
    ["requests", "many", null],
  ] as const)
    t.equal(readAmount(limit, text), amount, `${limit} ${text}`);
  t.end();
});

t.test("the fullest limit is the one of which the least is left", (t) => {
  const limits = [
    { limit: "spend", used: 1, held: 1, most: 10 },
    { limit: "tokens", used: 5, held: 0, most: 10 },
    { limit: "quota", used: null, held: null, most: 10 },
  ] as unknown as LimitStatus[];
  t.equal(fullest(limits)?.limit, "tokens");
  t.equal(fullest([]), null);
  t.end();
});

t.test("a form asks for what is changed, and for nothing else", (t) => {
  const tool = { name: "codex", gateway: "main" };
  const settings = { "limits.spend": "5/day", quota: "50" };
  const form = settingsForm(tool, { settings }, [], en);
  const typed = Object.fromEntries(form.fields({}).map(({ name, initial = "" }) => [name, initial]));
  t.equal(form.actionFor(typed), null, "nothing was changed");
  t.same(form.actionFor({ ...typed, "limits.spend": "2/day", quota: "" }), {
    kind: "set",
    tool: "codex",
    settings: { "limits.spend": "2/day", quota: "" },
  });
  t.end();
});

t.test("what is given begins with what the last refused request needed", (t) => {
  const limits = [
    { limit: "spend", lift: 1_230_000 },
    { limit: "requests", lift: null },
    { limit: "concurrent" },
    { limit: "quota" },
  ] as unknown as LimitStatus[];
  const form = giveForm("codex", null, limits, en);
  const [limit, amount] = form.fields({});
  t.same(
    limit?.choices?.map(([value]) => value),
    ["spend", "requests"],
  );
  t.equal(amount?.initial, "1.23");
  t.match(form.fields({ limit: "requests" })[1], { initial: "", label: "how much more" });
  t.match(amount?.check?.("-1"), /dollars above zero/);
  t.equal(amount?.check?.("1.50"), null);
  t.same(form.actionFor({ limit: "spend", amount: "1.50" }), {
    kind: "give",
    tool: "codex",
    limit: "spend",
    amount: 1_500_000,
  });
  t.end();
});

t.test("a key that no console can make is entered in a terminal", (t) => {
  const gateways = [
    { name: "main", makes_keys: true, groups: ["coding"] },
    { name: "side", makes_keys: false, groups: [] },
  ];
  const form = createForm(gateways, en);
  const choices = (typed: Record<string, string>, field: string) =>
    form
      .fields(typed)
      .find(({ name }) => name === field)
      ?.choices?.map(([value]) => value);
  t.same(choices({}, "key"), ["console", "terminal"]);
  t.same(choices({ gateway: "side" }, "key"), ["terminal"]);
  t.same(choices({}, "group"), ["", "coding"]);
  t.equal(choices({ gateway: "side" }, "group"), undefined, "it is typed where config.yaml has none");
  const typed = { tool: "zed", gateway: "main", group: "coding", key: "terminal" };
  t.equal(form.command?.(typed), "keybearer tools add zed --gateway main --group coding");
  t.equal(
    form.command?.({ ...typed, tool: "x; rm" }),
    "keybearer tools add <name> --gateway main --group coding",
  );
  t.equal(form.command?.({ ...typed, key: "console" }), null);
  t.same(form.actionFor(typed), { kind: "create", tool: "zed", gateway: "main", group: "coding" });
  const [name] = tokenForm("codex", en).fields({});
  t.equal(name?.check?.("laptop"), null);
  t.match(name?.check?.("my laptop"), /Use up to 40/);
  t.end();
});
