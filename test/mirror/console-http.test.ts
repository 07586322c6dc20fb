import t from "tap";
import { Secret } from "../../src/core/secret.ts";
import { ConsoleError, type ConsoleErrorKind } from "../../src/mirror/consoles/console.ts";
import {
  type ConsoleResponse,
  errorText,
  isDenied,
  readJson,
  readRetryAfter,
  required,
} from "../../src/mirror/consoles/http.ts";

function answer(status: number, text: string, headers: Record<string, string> = {}): ConsoleResponse {
  return { status, text, headers: { "content-type": "application/json", ...headers }, secrets: [] };
}

const HTML = { "content-type": "text/html; charset=utf-8" };
const PAGE = "<!doctype html><html><body>console</body></html>";

function errorOf(given: ConsoleResponse): ConsoleError {
  try {
    readJson(given, "the usage log");
  } catch (error) {
    if (error instanceof ConsoleError) return error;
    throw error;
  }
  throw new Error("no error");
}

t.test("an answer that is an error or not a JSON object becomes an error of the right kind", async (t) => {
  const cases: [string, ConsoleResponse, ConsoleErrorKind, RegExp][] = [
    ["a web page", answer(200, PAGE, HTML), "not-a-console", /web page: is the url right/],
    ["a web page that says JSON", answer(200, PAGE), "not-a-console", /web page/],
    ["a web page with 404", answer(404, PAGE, HTML), "not-a-console", /web page/],
    ["a wall", answer(403, PAGE, HTML), "not-a-console", /needs a browser/],
    ["a redirect", answer(302, "", { location: "https://x.test" }), "not-a-console", /redirect/],
    ["nothing", answer(200, ""), "not-a-console", /an empty body/],
    ["half an object", answer(200, '{"code":0,"da'), "not-a-console", /not a JSON/],
    ["plain text with 404", answer(404, "404 page not found"), "not-a-console", /not a JSON/],
    ["a list", answer(200, "[1]"), "not-a-console", /not a JSON object/],
    ["an unknown path", answer(404, '{"code":404}'), "other-shape", /does not know the usage log/],
    ["a bad request", answer(400, '{"message":"Invalid date"}'), "failing", /400: Invalid date/],
    ["a failure", answer(500, '{"error":{"message":"boom"}}'), "failing", /500: boom/],
    ["a failing wall", answer(502, PAGE, HTML), "failing", /answered 502$/],
    ["too often, and no body", answer(429, ""), "rate-limited", /too many requests/],
    ["a denial", answer(401, "{}"), "login-needed", /401/],
  ];
  for (const [name, given, kind, words] of cases) {
    const error = errorOf(given);
    t.equal(error.kind, kind, name);
    t.match(error.message, words, name);
  }
});

t.test("an object passes, and a missing field is named", (t) => {
  t.same(readJson(answer(200, '{"code":0}'), "x"), { code: 0 });
  t.throws(() => required(null, "items", "the usage log"), {
    kind: "other-shape",
    message: /the usage log without a usable "items"/,
  });
  t.end();
});

t.test("a 401 or 403 of the console is a denial, and one of a firewall page is not", (t) => {
  t.equal(isDenied(answer(401, '{"code":"TOKEN_EXPIRED"}')), true);
  t.equal(isDenied(answer(401, "")), true);
  t.equal(isDenied(answer(403, "{}")), true);
  t.equal(isDenied(answer(403, PAGE, HTML)), false);
  t.equal(isDenied(answer(200, "{}")), false);
  t.end();
});

t.test(
  "a secret of the request is redacted from the console's message, even where the message is cut",
  (t) => {
    const password = new Secret("hunter2-and-more");
    const said = `${"x ".repeat(95)}hunter2-and-more`;
    const response = { ...answer(400, JSON.stringify({ message: said })), secrets: [password] };
    t.notMatch(errorText(response), "hunter2");
    const spelled = String.raw`{"message":"\u0068unter2-and-more"}`;
    t.equal(errorText({ ...answer(400, spelled), secrets: [password] }), ": [redacted]");
    t.end();
  },
);

t.test("Retry-After is read as seconds, at most a day", (t) => {
  const wait = (headers: Record<string, string>) => readRetryAfter(answer(429, "", headers));
  t.equal(wait({ "retry-after": "17" }), 17);
  t.equal(wait({ "retry-after": "999999999" }), 86_400, "a day at most");
  const date = "Sun, 15 Nov 2026 10:00:00 GMT";
  t.equal(wait({ "retry-after": "Sun, 15 Nov 2026 10:00:42 GMT", date }), 42);
  t.equal(wait({ "retry-after": "Sun, 15 Nov 2026 09:00:00 GMT", date }), 0, "already over");
  t.equal(wait({ "retry-after": "Sun, 15 Nov 2026 10:00:42 GMT" }), null, "its clock is not known");
  t.equal(wait({ "retry-after": "soon" }), null);
  t.equal(wait({}), null);
  t.equal(errorOf(answer(429, "", { "retry-after": "17" })).retryAfter, 17);
  t.equal(errorOf(answer(503, "", { "retry-after": "5" })).retryAfter, 5);
  t.end();
});

t.test("a console's message is shortened, and keys and control characters are removed", (t) => {
  const key = `sk-${"a1".repeat(32)}`;
  const said = `\u001b[31m${key}\r\nline \u202Etwo ${"x".repeat(5000)}`;
  const { message } = errorOf(answer(500, JSON.stringify({ message: said })));
  t.notMatch(message, key);
  t.notMatch(message, "sk-a1a1");
  t.notOk(/[\p{Cc}\p{Cf}]/u.test(message));
  t.ok(message.length <= "answered 500: ".length + 200);
  const late = errorOf(answer(500, JSON.stringify({ message: `${"y ".repeat(92)}${key}` }))).message;
  t.notMatch(late, /sk-a1/, "not even the beginning of one that the cut divides");
  t.end();
});
