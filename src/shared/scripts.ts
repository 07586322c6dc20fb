import { DAY_MS, MINUTE_MS } from "../core/units.ts";

/*
 * The scripts that run inside the store. Each is one atomic step, by the store's own clock. Their arguments and answers are
 * JSON; everything they answer is checked in store.ts.
 *
 * Keys, all below the configured prefix:
 *   generation          hash: id, run, timezone, since (when it began), settled (before this time, nothing is granted in
 *                       running windows). Missing: the store lost its data.
 *   machines            hash: machine id → JSON, see `Machine` below
 *   window:…            hash: machine id → "granted used held", for one limit of one tool in one window
 *   positions           hash: machine id → how far its journal is published
 *   records:<id>        stream: the finished records of one machine
 *
 * Machine: name, connection (only this connection may write for it), seen (last contact), generation (in which it reported
 * what it holds), published, entry, keys, statement and signature (what it says of itself, signed), gone (the owner said that it is lost, or it was silent for months), released (it
 * was gone, and holds nothing).
 *
 * In GRANT and PUBLISH a machine writes only its own fields, and always absolute numbers. So a call that is repeated, because
 * its answer was lost, changes nothing.
 */

/**
 * A machine that was silent for this long counts as absent: its part of `concurrent` is free, it can be released, and its
 * time zone does not bind the others.
 */
export const HEARTBEAT_TIMEOUT_MS = MINUTE_MS;

/** What a store acknowledged in this time before a restart or a failover may be lost, even with an append-only file. */
const UNSAFE_MS = MINUTE_MS;

/** Machines that were silent for longer hold nothing of any window, except of a quota. The store does not wait for them. */
const FORGOTTEN_MS = 70 * DAY_MS;

/**
 * After a loss of data, nothing is granted in running windows for this long. The machine that joins first may not know all
 * others. Connected machines report every ten seconds, so they notice the loss before this ends, join again, and name the
 * machines that they know.
 */
const SETTLE_MS = 15_000;

/** A refill takes an eighth of what is left. So the steps become smaller near the limit. */
const REFILL_DIVISOR = 8;

const PRELUDE = `
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local call = cjson.decode(ARGV[1])

local function read_hash(key)
  local flat = redis.call('HGETALL', key)
  local hash = {}
  for i = 1, #flat, 2 do hash[flat[i]] = flat[i + 1] end
  return hash
end

local function read_machines(key)
  local machines = read_hash(key)
  for id, text in pairs(machines) do machines[id] = cjson.decode(text) end
  return machines
end

local function write_machine(key, id, machine)
  redis.call('HSET', key, id, cjson.encode(machine))
end

-- Why a machine may not write on its connection; nil: it may.
local function problem_of(machine)
  if not machine then return 'generation' end
  if machine.gone then return 'released' end
  -- Another machine listed it again, after a loss of data.
  if machine.connection == '' then return 'generation' end
  if machine.connection ~= call.connection then return 'superseded' end
end

local function whole(number)
  return string.format('%.0f', number)
end
`;

/**
 * A machine joins. KEYS: generation, machines.
 *
 * A new generation begins if the store lost its data, if its process changed (a restart or a failover may have lost what was
 * acknowledged last), or if the machines change their time zone (then other windows count). In a new generation, nothing is
 * granted in running windows until every machine that may hold a grant has reported it.
 */
export const JOIN = `${PRELUDE}
local generation = read_hash(KEYS[1])
local machines = read_machines(KEYS[2])
local is_lost = generation.id == nil
local is_other_zone = not is_lost and generation.timezone ~= call.timezone
local is_restarted = not is_lost and generation.run ~= call.run

if is_other_zone then
  for id, machine in pairs(machines) do
    if id ~= call.id and not machine.gone and machine.seen > now - ${HEARTBEAT_TIMEOUT_MS} then
      return cjson.encode({ time = now, problem = 'timezone', timezone = generation.timezone })
    end
  end
end

-- A machine knows the name of its last connection. A copied or restored state folder does not.
local before = machines[call.id]
if before and before.connection ~= '' then
  local is_known = false
  for _, name in ipairs(call.connections) do is_known = is_known or name == before.connection end
  if not is_known then return cjson.encode({ time = now, problem = 'copied' }) end
end

local last = 0
for _, machine in pairs(machines) do last = math.max(last, machine.seen) end

for _, known in ipairs(call.known) do
  if not machines[known.id] then
    local seen = now - ${HEARTBEAT_TIMEOUT_MS}
    machines[known.id] = { name = known.name, connection = '', seen = seen, generation = '', keys = known.keys }
    write_machine(KEYS[2], known.id, machines[known.id])
  end
end

if is_lost or is_restarted or is_other_zone then
  for id, machine in pairs(machines) do
    local is_forgotten = machine.seen < now - ${FORGOTTEN_MS}
    local is_safe = call.append_only and not is_lost and not is_other_zone
      and machine.generation == generation.id and machine.seen < last - ${UNSAFE_MS}
    machine.gone = machine.gone or is_forgotten
    machine.generation = is_safe and call.new_generation or ''
    write_machine(KEYS[2], id, machine)
  end
  -- The clock of another server may be behind.
  local since = whole(math.max(now, last))
  generation = { id = call.new_generation, run = call.run, timezone = call.timezone, since = since }
  redis.call('HSET', KEYS[1], 'id', generation.id, 'run', generation.run,
    'timezone', generation.timezone, 'since', generation.since)
end

-- If a new machine finds the store empty, we assume that the store is new. One that is not new, and not listed, shows that
-- the store lost data.
local is_unlisted = not before and not call.is_new
if is_unlisted or (is_restarted and not call.append_only) then
  redis.call('HSET', KEYS[1], 'settled', whole(now + ${SETTLE_MS}))
end

local machine = machines[call.id] or { generation = '', keys = {} }
-- A new machine holds nothing, so the store need not wait for its report.
if call.is_new then machine.generation = generation.id end
machine.name = call.name
machine.connection = call.connection
machine.seen = now
-- GRANT clears it. Until then each join answers it again, because the answer to this one may be lost.
machine.released = machine.released or machine.gone
machine.gone = nil
write_machine(KEYS[2], call.id, machine)
return cjson.encode({ time = now, generation = generation.id, released = machine.released })
`;

/**
 * A machine says what it keeps of each window, asks for more, and shows that it is there. KEYS: generation, machines, then
 * one hash for each ask.
 *
 * An ask: tool, keep (what the machine holds in any case), need (what its waiting requests need; 0: nothing more), least
 * (what the first of them needs; 0: none waits), spare (whether it may get more than that), used, held (by requests in
 * flight), limit, start, end, expires, and is_concurrent. All are totals of the machine in the window.
 *
 * If the first waiting request of a tool does not get everything that it needs, the tool gets nothing. Otherwise two machines
 * could each hold a part of what both need.
 */
export const GRANT = `${PRELUDE}
local generation = read_hash(KEYS[1])
local machines = read_machines(KEYS[2])
local me = machines[call.id]
local problem = generation.id ~= call.generation and 'generation' or problem_of(me)
if problem then return cjson.encode({ time = now, problem = problem }) end

me.seen = now
me.released = nil
me.generation = generation.id
me.published = call.published
me.keys = call.keys
me.statement = call.statement
me.signature = call.signature
write_machine(KEYS[2], call.id, me)

local is_settled = now >= tonumber(generation.settled or 0)
local list = {}
for id, machine in pairs(machines) do
  local is_unreported = not machine.gone and machine.generation ~= generation.id
  if is_unreported then is_settled = false end
  list[#list + 1] = { id = id, name = machine.name, seen = machine.seen, published = machine.published,
    entry = machine.entry, keys = machine.keys, gone = machine.gone, unreported = is_unreported,
    statement = machine.statement, signature = machine.signature }
end
-- A machine does not read the whole list if it is very long.
table.sort(list, function(a, b) return a.seen > b.seen end)

local since = tonumber(generation.since)
local windows = {}
local is_short = {}
for i, ask in ipairs(call.asks) do
  local parts = read_hash(KEYS[2 + i])
  local others = 0
  for id, part in pairs(parts) do
    local machine = machines[id]
    local is_present = machine and machine.seen > now - ${HEARTBEAT_TIMEOUT_MS}
    if id ~= call.id and (not ask.is_concurrent or is_present) then
      others = others + tonumber(string.match(part, '^%d+'))
    elseif id ~= call.id then
      parts[id] = nil
    end
  end
  local is_new = ask.is_concurrent and now >= since + ${HEARTBEAT_TIMEOUT_MS} or ask.start >= since
  local is_open = now >= ask.start and now < ask['end'] and (is_settled or is_new)
  local room = is_open and ask.limit - others or 0
  windows[i] = { parts = parts, room = room }
  if ask.least > math.max(room, ask.keep) then is_short[ask.tool] = true end
end

local answers = {}
for i, ask in ipairs(call.asks) do
  local key = KEYS[2 + i]
  local parts, room = windows[i].parts, windows[i].room
  local granted = ask.keep
  if ask.need > granted and room > granted and not is_short[ask.tool] then
    granted = math.min(ask.need, room)
    if ask.spare and ask.need < room then
      granted = ask.need + math.floor((room - ask.need) / ${REFILL_DIVISOR})
    end
  end
  if granted > 0 or ask.used > 0 or parts[call.id] then
    parts[call.id] = whole(granted) .. ' ' .. whole(ask.used) .. ' ' .. whole(ask.held)
    redis.call('HSET', key, call.id, parts[call.id])
    if ask.expires > 0 then redis.call('PEXPIREAT', key, whole(ask.expires)) end
  end
  local texts = {}
  for id, part in pairs(parts) do texts[#texts + 1] = id .. ' ' .. part end
  answers[i] = { granted = granted, parts = texts }
end
return cjson.encode({ time = now, answers = answers, machines = list, settled = is_settled })
`;

/**
 * Publishes finished records. KEYS: machines, positions, the machine's stream. ARGV after the call: the entries, each as its
 * text and its signature, which is empty if the machine has no secret.
 * They are added only if the stored position is the one that they follow.
 */
export const PUBLISH = `${PRELUDE}
local machines = read_machines(KEYS[1])
local me = machines[call.id]
local problem = problem_of(me)
if problem then return cjson.encode({ time = now, problem = problem }) end
local position = redis.call('HGET', KEYS[2], call.id)
if (position or '') == call.from then
  for i = 2, #ARGV, 2 do
    me.entry = redis.call('XADD', KEYS[3], 'MINID', '~', whole(now - call.keep), '*',
      'record', ARGV[i], 'signature', ARGV[i + 1])
  end
  redis.call('HSET', KEYS[2], call.id, call.to)
  write_machine(KEYS[1], call.id, me)
  position = call.to
end
return cjson.encode({ time = now, position = position or '' })
`;

/** The owner says that a machine is lost. KEYS: machines, then the windows of a tool in which it may hold something. */
export const RELEASE = `${PRELUDE}
local machines = read_machines(KEYS[1])
local lost = machines[call.lost]
if not lost then return cjson.encode({ time = now, problem = 'unknown' }) end
if call.lost == call.id or (not lost.gone and lost.seen > now - ${HEARTBEAT_TIMEOUT_MS}) then
  return cjson.encode({ time = now, problem = 'present' })
end
lost.gone = true
lost.connection = ''
write_machine(KEYS[1], call.lost, lost)
for i = 2, #KEYS do
  local part = redis.call('HGET', KEYS[i], call.lost)
  if part then
    -- Its requests in flight may have reached the gateway.
    local used, held = string.match(part, '(%d+) (%d+)$')
    local own = whole(used + held)
    redis.call('HSET', KEYS[i], call.lost, own .. ' ' .. own .. ' 0')
  end
end
return cjson.encode({ time = now })
`;
