import type { Clock } from "../core/clock.ts";
import type { Account } from "./account.ts";
import { costOf, type Tokens } from "./billing.ts";
import { cutConnection, sendPaced } from "./delivery.ts";
import { type Exchange, pause, writePiece } from "./exchange.ts";
import type { Pace } from "./faults.ts";
import type { Group } from "./groups.ts";
import type { Keys, SandboxKey } from "./keys.ts";
import type { Model } from "./models.ts";
import type { PrefixCache } from "./prefix-cache.ts";
import type { Ask, Protocol, Reply } from "./protocols/protocol.ts";
import { countTokens } from "./tokens.ts";
import type { UsageLog } from "./usage-log.ts";
import { wordsOf } from "./words.ts";

/** A request that was let in. */
export interface Call {
  readonly exchange: Exchange;
  readonly protocol: Protocol;
  readonly endpoint: string;
  readonly ask: Ask;
  readonly model: Model;
  readonly key: SandboxKey;
  readonly group: Group;
  readonly pace: Pace;
}

export interface AnsweringNeeds {
  readonly clock: Clock;
  readonly account: Account;
  readonly keys: Keys;
  readonly usage: UsageLog;
  readonly prefixes: PrefixCache;
  readonly wordDelay: number;
  readonly textFor: (ask: Ask) => string;
}

/** Answers and bills. Resolves when the answer is over, however it ended. */
export async function answer(call: Call, needs: AnsweringNeeds): Promise<void> {
  const reply = replyTo(call, needs);
  if (call.pace.beforeHeaders > 0) await pause(call.pace.beforeHeaders, call.exchange.gone);
  if (!call.ask.stream || call.exchange.gone.aborted) await sendWhole(call, reply, needs);
  else await sendStream(call, reply, needs);
}

function replyTo(call: Call, needs: AnsweringNeeds): Reply {
  const { ask, model, protocol, exchange } = call;
  const words =
    protocol.wants === "text"
      ? wordsOf(needs.textFor(ask), model, ask.maxTokens)
      : { pieces: [], reasoning: 0, truncated: false };
  const text = words.pieces.join("");
  const prompt = Math.max(1, countTokens(ask.prompt));
  const seen = needs.prefixes.visit(`${call.key.id} ${model.id}`, ask.prompt);
  const cacheWrite = protocol.tellsCacheWrites ? seen.newTokens : 0;
  const tokens: Tokens = {
    input: prompt - seen.readTokens - cacheWrite,
    cacheRead: seen.readTokens,
    cacheWrite,
    output: words.reasoning + countTokens(text),
    reasoning: words.reasoning,
  };
  return {
    id: exchange.id.replaceAll("-", ""),
    model: model.id,
    created: Math.floor(needs.clock.now() / 1000),
    pieces: words.pieces,
    text,
    truncated: words.truncated,
    tokens,
  };
}

async function sendWhole(call: Call, reply: Reply, needs: AnsweringNeeds): Promise<void> {
  const { exchange, pace } = call;
  // Billed first: whoever has read the answer finds its row. Whoever left before it pays for what was read.
  const left = exchange.gone.aborted;
  bill(call, left ? withOutput(reply.tokens, 0) : reply.tokens, null, needs);
  if (left) return;
  await sendPaced(exchange, call.protocol.whole(call.ask, reply), pace);
}

async function sendStream(call: Call, reply: Reply, needs: AnsweringNeeds): Promise<void> {
  const { exchange, pace, protocol } = call;
  const delay = pace.betweenChunks ?? needs.wordDelay;
  let sent = "";
  let count = 0;
  let firstTokenMs: number | null = null;
  exchange.response.writeHead(200, {
    "Content-Type": "text/event-stream",
    "Cache-Control": "no-cache",
    "X-Accel-Buffering": "no",
  });
  exchange.response.flushHeaders();
  exchange.entry.status = 200;
  for (const frame of protocol.frames(call.ask, reply)) {
    if (count === pace.cutAfter) break;
    if (frame.words !== undefined || pace.betweenChunks !== null) await pause(delay, exchange.gone);
    if (exchange.gone.aborted) break;
    if (frame.words !== undefined) {
      firstTokenMs ??= sinceBegin(call, needs);
      sent += frame.words;
    }
    count += 1;
    await writePiece(exchange, frame.bytes);
  }
  bill(call, withOutput(reply.tokens, reply.tokens.reasoning + countTokens(sent)), firstTokenMs, needs);
  if (count === pace.cutAfter) cutConnection(exchange);
  else exchange.response.end();
}

function bill(call: Call, tokens: Tokens, firstTokenMs: number | null, needs: AnsweringNeeds): void {
  const { exchange, key, group, model } = call;
  const cost = costOf(tokens, model.price, group.multiplier);
  needs.account.spend(cost.actual);
  needs.keys.spend(key, cost.actual);
  needs.usage.add({
    keyId: key.id,
    groupId: group.id,
    requestId: `client:${exchange.id}`,
    model: model.id,
    endpoint: call.endpoint,
    stream: call.ask.stream,
    tokens,
    cost,
    multiplier: group.multiplier,
    durationMs: sinceBegin(call, needs),
    firstTokenMs,
    userAgent: exchange.request.headers["user-agent"] ?? null,
    sessionId: sessionOf(exchange),
    ipAddress: exchange.request.socket.remoteAddress ?? null,
    createdAt: needs.clock.now(),
  });
}

function sinceBegin(call: Call, needs: AnsweringNeeds): number {
  return Math.round(needs.clock.elapsed() - call.exchange.begunAt);
}

function withOutput(tokens: Tokens, output: number): Tokens {
  return { ...tokens, output, reasoning: Math.min(tokens.reasoning, output) };
}

/** The headers by which sub2api groups the rows of one conversation, in its order. */
function sessionOf(exchange: Exchange): string | null {
  const { headers } = exchange.request;
  for (const name of ["session_id", "conversation_id", "x-claude-code-session-id"]) {
    const value = headers[name];
    if (typeof value === "string" && value !== "" && value.length <= 255) return value;
  }
  return null;
}
