import t from "tap";
import { asFields, asList, fieldAt, numberAt, parseObject, textAt, textsIn } from "../../src/core/json.ts";

t.test("JSON from outside is read field by field, and what has another type reads as nothing", async (t) => {
  const object = parseObject('{"text": "a", "number": 1, "large": 1e999, "list": ["b"]}') ?? {};
  t.equal(textAt(object, "text"), "a");
  t.equal(textAt(object, "number"), null);
  t.equal(numberAt(object, "number"), 1);
  t.equal(numberAt(object, "large"), null, "1e999 reads as Infinity");
  t.equal(numberAt(object, "none"), null);
  t.same(asList(fieldAt(object, "list")), ["b"]);
  t.same(asList(object), []);
  t.same(asFields(["b"]), {});
  t.same(textsIn(object), { text: "a" });
  t.same(textsIn("abc"), {});
});

t.test("only objects are objects, and only their own fields are fields", async (t) => {
  for (const text of ["", "{", "null", "[1]", '"a"', "1"]) t.equal(parseObject(text), null, text);
  t.equal(fieldAt({}, "constructor"), undefined);
  t.equal(fieldAt(null, "a"), undefined);
  t.equal(fieldAt([1], "0"), undefined, "a list has no fields");
});
