import fc from "fast-check";
import t from "tap";
import { firstIdAt, requestId } from "../../../src/core/ids.ts";
import { dollars, duration, exact } from "../../../src/core/units.ts";
import { count, csvLine, jsonText, percent, short } from "../../../src/usage/reports/format.ts";

t.test("money has two digits that count, and rounds without a jump", async (t) => {
  const cases: [number, string][] = [
    [0, "$0"],
    [1, "$0.000001"],
    [54, "$0.000054"],
    [999, "$0.001"],
    [8130, "$0.0081"],
    [123_456, "$0.12"],
    [994_999, "$0.99"],
    [999_999, "$1.00"],
    [1_000_000, "$1.00"],
    [12_345_678, "$12.35"],
    [1_234_567_890_000, "$1,234,567.89"],
    [-2_500_000, "-$2.50"],
  ];
  for (const [amount, text] of cases) t.equal(dollars(amount), text, String(amount));
});

t.test("what is not nothing is never shown as nothing", async (t) => {
  t.doesNotThrow(() =>
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 1e12 }), (amount) => {
        const shown = Number(dollars(amount).replace(/[$,]/g, "")) * 1e6;
        return shown > 0 && Math.abs(shown - amount) <= Math.max(0.5, amount * 0.051);
      }),
    ),
  );
});

t.test("numbers are short in tables and exact elsewhere", async (t) => {
  const cases: [number, string][] = [
    [0, "0"],
    [999, "999"],
    [1000, "1.0k"],
    [1234, "1.2k"],
    [9949, "9.9k"],
    [9950, "10k"],
    [999_499, "999k"],
    [999_500, "1.0M"],
    [3_400_000, "3.4M"],
    [29_000_000_000, "29B"],
    [1.5e12, "1.5T"],
  ];
  for (const [number, text] of cases) t.equal(short(number), text, String(number));
  t.equal(exact(1_234_567), "1,234,567");
  t.equal(exact(999), "999");
  t.equal(count(1, "request"), "1 request");
  t.equal(count(2000, "request"), "2,000 requests");
  t.same([878, 999.4, 999.6, 2333, 9949, 9951, 75_000, 700_000].map(duration), [
    ...["878 ms", "999 ms", "1.0 s", "2.3 s", "9.9 s", "10 s", "75 s", "12 min"],
  ]);
  t.same([0, 0.004, 0.5, 0.999, 1].map(percent), ["0%", "0.4%", "50%", "100%", "100%"]);
});

t.test("a cell that a spreadsheet would run becomes text, and a number stays a number", async (t) => {
  const cells: [unknown, string][] = [
    ["=1+1", "'=1+1"],
    ['=HYPERLINK("http://evil.example","x")', `"'=HYPERLINK(""http://evil.example"",""x"")"`],
    ["+1", "'+1"],
    ["-1+1", "'-1+1"],
    ["-5", "-5"],
    ["-0.5", "-0.5"],
    [-5, "-5"],
    ["@SUM(A1)", "'@SUM(A1)"],
    ["\t=1", "'?=1"],
    ["\r=1", "'?=1"],
    [" =1", "' =1"],
    [" x", '" x"'],
    ["＝1", "'＝1"],
    ["a;=HYPERLINK(1)", `"a;'=HYPERLINK(1)"`],
    ["a; \t+1|-2", `"a;' ?+1|'-2"`],
    ['a;"=1"', `"a;'""=1"""`],
    ["a|＠SUM(A1)", `"a|'＠SUM(A1)"`],
    ["text/plain; charset=utf-8", '"text/plain; charset=utf-8"'],
    ["plain", "plain"],
    ["…a1b2", "…a1b2"],
    ["a,b", '"a,b"'],
    ['say "hi"', '"say ""hi"""'],
    ["two\r\nlines", "two??lines"],
    ["\u001b[31mred", "?[31mred"],
    [null, ""],
    [true, "true"],
    [{ a: "=1" }, '"{""a"":""=1""}"'],
  ];
  for (const [cell, text] of cells) t.equal(csvLine([cell]), `${text}\r\n`, JSON.stringify(cell));
});

t.test("every line of CSV is read back as one line with as many cells, none a formula", async (t) => {
  t.doesNotThrow(() =>
    fc.assert(
      fc.property(fc.array(fc.string({ unit: "grapheme" }), { minLength: 1, maxLength: 6 }), (cells) => {
        const line = csvLine(cells);
        const read = readCsv(line.slice(0, -2));
        return (
          line.endsWith("\r\n") &&
          !/[\r\n]/.test(line.slice(0, -2)) &&
          read.length === cells.length &&
          read.every((cell) => !/^[=+@\t\r]/.test(cell) && (!cell.startsWith("-") || /^-[\d.]+$/.test(cell)))
        );
      }),
    ),
  );
});

t.test("no cell becomes a formula, with any separator of a spreadsheet", async (t) => {
  const letters = fc.constantFrom(...`=+-@;|,"' \ta1\n＝`);
  const cell = fc.string({ unit: letters, maxLength: 12 });
  t.doesNotThrow(() =>
    fc.assert(
      fc.property(fc.array(cell, { minLength: 1, maxLength: 3 }), (cells) => {
        const line = csvLine(cells).slice(0, -2);
        // Split without any regard to quotes, which is how a line reads whose quotes do not stand at a cell's ends.
        return [";", "|", "\t"].every((separator) =>
          line
            .split(separator)
            .slice(1)
            .every((part) => !/^[\s"]*[=+\-@＝]/.test(part)),
        );
      }),
      { numRuns: 2000 },
    ),
  );
});

/** RFC 4180, letter by letter. */
function readCsv(line: string): string[] {
  const cells = [""];
  let quoted = false;
  for (let at = 0; at < line.length; at += 1) {
    const letter = line.charAt(at);
    const last = cells.length - 1;
    if (quoted && letter === '"' && line.charAt(at + 1) === '"') at += 1;
    else if (letter === '"') {
      quoted = !quoted;
      continue;
    } else if (letter === "," && !quoted) {
      cells.push("");
      continue;
    }
    cells[last] += letter;
  }
  return cells;
}

t.test("JSON has the same values and cannot control a terminal", async (t) => {
  const hostile = { model: "\u001b[2J\u009b31m\u202eevil\u2066\u007f\u2028 ok …" };
  const text = jsonText(hostile);
  t.same(JSON.parse(text), hostile);
  t.notMatch(text, /[\p{Cc}\p{Bidi_Control}\p{Zl}]/u);
  t.equal(jsonText({ a: 1 }, 2), '{\n  "a": 1\n}');
});

t.test("a request's id begins with the first id of its time, and later times have later ids", async (t) => {
  for (const time of [0, 1, 31, 32, 1_763_164_800_123, 2 ** 48 - 1]) {
    t.equal(requestId(time).slice(0, 10), firstIdAt(time));
  }
  fc.assert(
    fc.property(fc.integer({ min: 0, max: 2 ** 47 }), fc.integer({ min: 0, max: 2 ** 47 }), (a, b) =>
      a < b ? firstIdAt(a) < firstIdAt(b) : firstIdAt(a) >= firstIdAt(b),
    ),
  );
  t.equal(firstIdAt(-5), "0000000000");
});
