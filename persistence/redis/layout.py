"""The keys in the Redis server, and the scripts that change them.

    {prefix}:jobs        hash    id -> the job, as `wire.jobdump` writes it
    {prefix}:units       hash    id of a job that is there -> the last word on each of its units, see below
    {prefix}:groups      hash    place of a group -> where it begins, see below
    {prefix}:pauses      hash    queue -> its pause on this node alone, as `wire.jobdump` writes it
    {prefix}:policies    hash    number of the field, colon, queue -> what the cluster says of it, likewise
    {prefix}:done        stream  id, queue, added, time [, scope]: units that were acknowledged; the newest ones
    {prefix}:evictions   stream  id, queue, added, time, reason: jobs that ended otherwise; the newest ones
    {prefix}:order       list    ids in the order of a snapshot with queues
    {prefix}:meta        hash    format, birth, epoch, writer, sequence, jobs, units, groups, queues, until, server
    {prefix}:owner       string  the run that writes now; ends with its lease
    {prefix}:new:...             the same, while it is being written anew

The braces are part of the names: a cluster keeps such keys in one slot, so that a script may use all of them.

    birth     random, made with the keys: tells our data from those of somebody else
    epoch     counted up by each run that takes possession: tells our data from an older state of them
    writer    the run that took possession last
    sequence  number of the last batch of records that was applied
    jobs      how many there are: tells when something else has removed some
    units     of how many jobs there is a word about units, likewise
    groups    of how many groups there is one, likewise
    queues    there while what the jobs say of their place in a queue is true
    until     up to when delayed jobs have been queued (`core.model.watermark`)
    server    run of the server that wrote that: another run of it may have lost records

The last word on a unit says who has it, or that a group is done with it: a record as `wire.jobdump` writes it.  Those
of one job stand behind each other, each as length of scope 2 bytes, length of record 4 bytes, little-endian, scope,
record.  They go with their job.

The place of a group is ``4:mail:senders``: length of the name of its queue, that name, its own.  ``4:mail`` stands for
all groups of the queue: the events up to there were flushed.  What stands there is a record as `wire.jobdump` writes
it.  Of two the one of the later epoch counts, and of one epoch the higher stamp of each node.  It goes when the node
says that it means nothing any more, and not before, whatever its age: events could come back that were flushed.  The
node says so once the longest life of an event has passed since, so that none stays for ever.

A script runs as one step that nothing else interrupts, and Redis journals and replicates what it did as one
transaction.  Each begins by looking whether the data are still what this run left, and writes the lease first, so that
a server that takes no writes (out of memory, a replica, its disk full) refuses the whole of it.  A script answers a
list that begins with a word: ``ok``, or what is in the way.

Times are integer milliseconds of the wall clock.
"""

from typing import Final

import attrs

#: Version of the layout; a greater number is refused.  1 knew nothing of units, 2 nothing of groups, 3 nothing of
#: policies, 4 nothing of terms and fates.
FORMAT: Final = 5
HISTORY: Final = 100_000  #: entries that each stream keeps, about

KINDS: Final = {
    "jobs": "hash", "units": "hash", "groups": "hash", "pauses": "hash", "done": "stream", "evictions": "stream",
    "order": "list", "meta": "hash", "owner": "string", "new:jobs": "hash", "new:units": "hash", "new:groups": "hash",
    "new:pauses": "hash", "new:order": "list", "new:meta": "hash", "policies": "hash", "new:policies": "hash",
}  # fmt: skip


@attrs.frozen
class Keys:
    """The names of the keys of one node."""

    prefix: str
    #: Every key, in the order in which the scripts take them.
    names: list[bytes] = attrs.field(init=False)

    @names.default
    def _name_all(self) -> list[bytes]:
        return [self.name(part) for part in KINDS]

    def name(self, part: str) -> bytes:
        """The key for a part: one of `KINDS`."""
        return b"{%b}:%b" % (self.prefix.encode(), part.encode())


#: What every script begins with.  KEYS are those of `KINDS`; ARGV 1 to 4 are writer, birth, epoch and lease.
_START = """
if redis.replicate_commands then redis.replicate_commands() end
local KINDS = {%(kinds)s}
local K = {%(names)s}
local WRITER, BIRTH, EPOCH, LEASE = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

local function misplaced()
    for i, kind in ipairs(KINDS) do
        local found = redis.call('TYPE', KEYS[i]).ok
        if found ~= 'none' and found ~= kind then return {'type', KEYS[i], found, kind} end
    end
end

local function hold()
    redis.call('SET', K.owner, WRITER, 'PX', LEASE)
end

local function read_meta()
    local names = {'format', 'birth', 'epoch', 'writer', 'sequence', 'jobs', 'units', 'groups', 'queues'}
    local values = redis.call('HMGET', K.meta, unpack(names))
    local meta = {}
    for i, name in ipairs(names) do meta[name] = values[i] end
    return meta
end

local function newer(meta)
    if meta.format and tonumber(meta.format) > %(format)d then return {'format', meta.format} end
end

local function missing(meta)
    for _, part in ipairs({'jobs', 'units', 'groups'}) do
        local count = redis.call('HLEN', K[part])
        local wanted = meta[part] or '0'
        if tostring(count) ~= wanted then return {'missing', count, wanted, K.meta, part} end
    end
end

-- Write down how many there are now; ARGV of HSET may follow.
local function count(...)
    redis.call('HSET', K.meta, 'jobs', redis.call('HLEN', K.jobs), 'units', redis.call('HLEN', K.units),
        'groups', redis.call('HLEN', K.groups), ...)
end

-- Write down up to when delayed jobs have been queued, as this run of the server knows it.
local function reach(mark)
    local facts = redis.pcall('INFO', 'server')
    local run = type(facts) == 'string' and string.match(facts, 'run_id:(%%w+)') or ''
    redis.call('HSET', K.meta, 'until', mark, 'server', run)
end

-- Whether the data are what this run left.
local function changed(meta)
    if not meta.format then return {'lost', 'is empty'} end
    if newer(meta) then return newer(meta) end
    if meta.birth ~= BIRTH then return {'taken', meta.writer or '?'} end
    if tonumber(meta.epoch) < tonumber(EPOCH) then return {'lost', 'is as it was before this node started'} end
    if meta.writer ~= WRITER then return {'taken', meta.writer or '?'} end
    local gap = missing(meta)
    if gap then return {'lost', 'has ' .. gap[2] .. ' ' .. gap[5] .. ' where ' .. gap[3] .. ' were written'} end
end
"""


def _script(body: str) -> bytes:
    start = _START % {
        "kinds": ", ".join(f"'{kind}'" for kind in KINDS.values()),
        "names": ", ".join(f"['{part}'] = KEYS[{number}]" for number, part in enumerate(KINDS, 1)),
        "format": FORMAT,
    }
    return (start + body).encode()


#: Take possession.  Answers ok, birth, epoch, sequence, queues, jobs, pauses; or held, by whom, ms left.
CLAIM: Final = _script(
    """
local wrong = misplaced()
if wrong then return wrong end
local owner = redis.call('GET', K.owner)
if owner and owner ~= WRITER then return {'held', owner, redis.call('PTTL', K.owner)} end
local meta = read_meta()
if newer(meta) then return newer(meta) end
if not meta.format then
    for _, part in ipairs({'jobs', 'units', 'groups', 'pauses', 'policies', 'order', 'done', 'evictions'}) do
        if redis.call('EXISTS', K[part]) == 1 then return {'foreign', K[part], K.meta} end
    end
    meta = {birth = BIRTH, epoch = '0', sequence = '0', jobs = '0'}
end
local gap = missing(meta)
if gap then return gap end
hold()
local epoch = string.format('%.0f', tonumber(meta.epoch) + 1)
redis.call('HSET', K.meta, 'format', FORMAT, 'birth', meta.birth, 'epoch', epoch, 'writer', WRITER,
    'sequence', meta.sequence, 'jobs', meta.jobs, 'units', meta.units or '0', 'groups', meta.groups or '0')
redis.call('UNLINK', K['new:jobs'], K['new:units'], K['new:groups'], K['new:pauses'], K['new:order'], K['new:meta'],
    K['new:policies'])
return {'ok', meta.birth, epoch, meta.sequence, meta.queues or '', meta.jobs, redis.call('HLEN', K.pauses)}
""".replace("FORMAT", str(FORMAT))
)

#: Renew the lease.  Answers ok, sequence; or lost, and then holds the lease all the same, or what else is wrong.
SYNC: Final = _script("""
local wrong = misplaced()
if wrong then return wrong end
local meta = read_meta()
local why = changed(meta)
if why and why[1] ~= 'lost' then return why end
if why and not meta.format then
    local owner = redis.call('GET', K.owner)
    if owner and owner ~= WRITER then return {'taken', owner} end
end
hold()
return why or {'ok', meta.sequence}
""")

#: What scripts begin with that put jobs into the history; their ARGV 5 says how many entries a stream keeps.
_HISTORY = """
local HISTORY = ARGV[5]

-- What a history tells of a job: its queue, and when it was added.
local function told(job)
    if string.byte(job) == 2 and #job > 5 then
        -- An alias stands in front.
        job = string.sub(job, 6 + struct.unpack('<I2', job, 4))
    end
    if #job < 81 then return '', '' end
    local length, _, ctime = struct.unpack('<I4I4i8', job, 10)
    local start = 82 + string.byte(job, 5)
    -- A double rounds the stamp by 128 ns at most.
    return string.sub(job, start, start + length - 1), string.format('%.0f', math.floor((ctime + 256) / 1000000))
end

local function note(stream, id, job, time, word, value)
    local queue, added = '', ''
    if job then queue, added = told(job) end
    local entry = {'id', id, 'queue', queue, 'added', added, 'time', time}
    if value ~= '' then entry[9], entry[10] = word, value end
    redis.call('XADD', stream, 'MAXLEN', '~', HISTORY, '*', unpack(entry))
end

-- What is over twice, as a job is that is delivered at most once and then acknowledged, is noted once.
local function gone(stream, id, time, word, value)
    local job = redis.call('HGET', K.jobs, id)
    if job then
        redis.call('HDEL', K.jobs, id)
        redis.call('HDEL', K.units, id)
        note(stream, id, job, time, word, value)
    end
end
"""

#: What scripts begin with that are told of units.
_UNITS = """
-- Keep the last word on a unit of a job that is there, behind those on its other units.
local function keep(jobs, units, id, scope, record)
    if redis.call('HEXISTS', jobs, id) == 0 then return end
    local known = redis.call('HGET', units, id) or ''
    local kept, at = {}, 1
    while at <= #known do
        local length, size = struct.unpack('<I2I4', known, at)
        local after = at + 6 + length + size
        if string.sub(known, at + 6, at + 5 + length) ~= scope then
            kept[#kept + 1] = string.sub(known, at, after - 1)
        end
        at = after
    end
    kept[#kept + 1] = struct.pack('<I2I4', #scope, #record) .. scope .. record
    redis.call('HSET', units, id, table.concat(kept))
end
"""

#: What scripts begin with that are told where groups begin.
_GROUPS = """
-- The epoch in a record, as digits, and where its stamps are.
local function parts(record)
    local queue, scope = struct.unpack('<I4I2', record, 11)
    return string.match(string.sub(record, 19 + queue, 18 + queue + scope), '^%d*'), 19 + queue + scope
end

-- Whether a number of 8 bytes, little-endian, is greater than another one; a double could not tell.
local function exceeds(one, other)
    for i = 8, 1, -1 do
        local a, b = string.byte(one, i), string.byte(other, i)
        if a ~= b then return a > b end
    end
    return false
end

-- Of two records of one epoch: the higher stamp of each node, in the newer one.
local function united(known, at, record, start)
    local names, stamps = {}, {}
    for _, from in ipairs({{known, at}, {record, start}}) do
        for i = from[2], #from[1], 16 do
            local name, stamp = string.sub(from[1], i, i + 7), string.sub(from[1], i + 8, i + 15)
            if not stamps[name] then names[#names + 1] = name end
            if not stamps[name] or exceeds(stamp, stamps[name]) then stamps[name] = stamp end
        end
    end
    table.sort(names)
    local all = {string.sub(record, 1, 16), struct.pack('<I2', #names), string.sub(record, 19, start - 1)}
    for _, name in ipairs(names) do all[#all + 1] = name .. stamps[name] end
    return table.concat(all)
end

-- Note where a group begins.
local function begin(groups, place, record)
    local known = redis.call('HGET', groups, place)
    if known then
        local before, at = parts(known)
        local epoch, start = parts(record)
        if #epoch < #before or (#epoch == #before and epoch < before) then return end
        if epoch == before then
            local union = united(known, at, record, start)
            -- What says nothing new is not newer.
            if string.sub(union, 19) == string.sub(known, 19) then return end
            record = union
        end
    end
    redis.call('HSET', groups, place, record)
end
"""

#: Apply a batch.  ARGV 6 and 7: the sequence before and after; then the records:
#: A n (id job)*n | D id scope time | L id scope record | E id | G id reason time | F time | P queue pause | U queue |
#: B place record | O place | W until | R place record | X place.
APPLY: Final = _script(
    _HISTORY
    + _UNITS
    + _GROUPS
    + """
local wrong = misplaced()
if wrong then return wrong end
local meta = read_meta()
wrong = changed(meta)
if wrong then return wrong end
local before, after = ARGV[6], ARGV[7]
if meta.sequence ~= before then return {'sequence', meta.sequence} end
hold()

local i, last = 8, #ARGV
while i <= last do
    local kind = ARGV[i]
    if kind == 'A' then
        local n = tonumber(ARGV[i + 1])
        redis.call('HSET', K.jobs, unpack(ARGV, i + 2, i + 1 + 2 * n))
        i = i + 2 + 2 * n
    elseif kind == 'D' then
        local id, scope, time = ARGV[i + 1], ARGV[i + 2], ARGV[i + 3]
        if scope == '' then
            gone(K.done, id, time, 'scope', scope)
        else
            note(K.done, id, redis.call('HGET', K.jobs, id), time, 'scope', scope)
        end
        i = i + 4
    elseif kind == 'L' then
        keep(K.jobs, K.units, ARGV[i + 1], ARGV[i + 2], ARGV[i + 3])
        i = i + 4
    elseif kind == 'E' then
        redis.call('HDEL', K.units, ARGV[i + 1])
        i = i + 2
    elseif kind == 'G' then
        gone(K.evictions, ARGV[i + 1], ARGV[i + 3], 'reason', ARGV[i + 2])
        i = i + 4
    elseif kind == 'F' then
        note(K.evictions, '', nil, ARGV[i + 1], 'reason', 'flushed')
        redis.call('UNLINK', K.jobs, K.units, K.groups, K.pauses)
        i = i + 2
    elseif kind == 'P' then
        redis.call('HSET', K.pauses, ARGV[i + 1], ARGV[i + 2])
        i = i + 3
    elseif kind == 'U' then
        redis.call('HDEL', K.pauses, ARGV[i + 1])
        i = i + 2
    elseif kind == 'B' then
        begin(K.groups, ARGV[i + 1], ARGV[i + 2])
        i = i + 3
    elseif kind == 'O' then
        redis.call('HDEL', K.groups, ARGV[i + 1])
        i = i + 2
    elseif kind == 'W' then
        reach(ARGV[i + 1])
        i = i + 2
    elseif kind == 'R' then
        redis.call('HSET', K.policies, ARGV[i + 1], ARGV[i + 2])
        i = i + 3
    elseif kind == 'X' then
        redis.call('HDEL', K.policies, ARGV[i + 1])
        i = i + 2
    else
        return redis.error_reply('ERR a batch with a record of kind ' .. tostring(kind))
    end
end
if meta.queues then
    redis.call('HDEL', K.meta, 'queues')
    redis.call('UNLINK', K.order)
end
count('sequence', after)
return {'ok', after}
"""
)

#: Remove jobs that are over, before it is their turn, from a server that is out of memory; ARGV 6 and on: D and G as in
#: a batch.  A script that has begun to write may go on, and to set a time to live needs no memory.
RELIEVE: Final = _script(
    _HISTORY
    + """
local wrong = misplaced()
if wrong then return wrong end
local meta = read_meta()
wrong = changed(meta)
if wrong then return wrong end
if redis.call('GET', K.owner) ~= WRITER then return {'taken', redis.call('GET', K.owner) or '?'} end
redis.call('PEXPIRE', K.owner, LEASE)
for i = 6, #ARGV, 4 do
    if ARGV[i] == 'D' then
        gone(K.done, ARGV[i + 1], ARGV[i + 3], 'scope', '')
    else
        gone(K.evictions, ARGV[i + 1], ARGV[i + 3], 'reason', ARGV[i + 2])
    end
end
count()
return {'ok'}
"""
)

#: Begin anew: everything goes, history too.
RENEW: Final = _script("""
local wrong = misplaced()
if wrong then return wrong end
local meta = read_meta()
wrong = changed(meta)
if wrong then return wrong end
hold()
redis.call('UNLINK', K.jobs, K.units, K.groups, K.pauses, K.policies, K.order, K.done, K.evictions)
count()
redis.call('HDEL', K.meta, 'queues', 'until', 'server')
return {'ok'}
""")

#: Write a part aside.  ARGV 5: its number, from 0; 6: 1 to keep the order; then as for a batch: A, P, R, B, L, E
#: and W, and D, which is no news.
STAGE: Final = _script(
    _UNITS
    + _GROUPS
    + """
local wrong = misplaced()
if wrong then return wrong end
if redis.call('GET', K.owner) ~= WRITER then return {'taken', redis.call('GET', K.owner) or '?'} end
hold()
local number = tonumber(ARGV[5])
if number == 0 then
    redis.call('UNLINK', K['new:jobs'], K['new:units'], K['new:groups'], K['new:pauses'], K['new:order'],
        K['new:meta'], K['new:policies'])
end
if (tonumber(redis.call('HGET', K['new:meta'], 'parts')) or 0) ~= number then return {'parts'} end
local i, last = 7, #ARGV
while i <= last do
    if ARGV[i] == 'A' then
        local n = tonumber(ARGV[i + 1])
        redis.call('HSET', K['new:jobs'], unpack(ARGV, i + 2, i + 1 + 2 * n))
        if ARGV[6] == '1' then
            local ids = {}
            for j = 1, n do ids[j] = ARGV[i + 2 * j] end
            redis.call('RPUSH', K['new:order'], unpack(ids))
        end
        i = i + 2 + 2 * n
    elseif ARGV[i] == 'P' then
        redis.call('HSET', K['new:pauses'], ARGV[i + 1], ARGV[i + 2])
        i = i + 3
    elseif ARGV[i] == 'R' then
        redis.call('HSET', K['new:policies'], ARGV[i + 1], ARGV[i + 2])
        i = i + 3
    elseif ARGV[i] == 'B' then
        begin(K['new:groups'], ARGV[i + 1], ARGV[i + 2])
        i = i + 3
    elseif ARGV[i] == 'L' then
        keep(K['new:jobs'], K['new:units'], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3])
        i = i + 4
    elseif ARGV[i] == 'E' then
        redis.call('HDEL', K['new:units'], ARGV[i + 1])
        i = i + 2
    elseif ARGV[i] == 'D' then
        i = i + 4
    elseif ARGV[i] == 'W' then
        redis.call('HSET', K['new:meta'], 'until', ARGV[i + 1])
        i = i + 2
    else
        return redis.error_reply('ERR a snapshot with a record of kind ' .. tostring(ARGV[i]))
    end
end
redis.call('HSET', K['new:meta'], 'parts', number + 1)
return {'ok'}
"""
)

#: Put what was written aside into its place.  ARGV 5: how many parts; 6: 1 when it has queues; 7: the sequence.
SWAP: Final = _script(
    """
local wrong = misplaced()
if wrong then return wrong end
local meta = read_meta()
wrong = changed(meta)
if wrong and wrong[1] ~= 'lost' then return wrong end
if redis.call('GET', K.owner) ~= WRITER then return {'taken', redis.call('GET', K.owner) or '?'} end
if (tonumber(redis.call('HGET', K['new:meta'], 'parts')) or 0) ~= tonumber(ARGV[5]) then return {'parts'} end
hold()
local mark = redis.call('HGET', K['new:meta'], 'until')
redis.call('UNLINK', K.jobs, K.units, K.groups, K.pauses, K.policies, K.order, K['new:meta'])
for _, part in ipairs({'jobs', 'units', 'groups', 'pauses', 'policies', 'order'}) do
    if redis.call('EXISTS', K['new:' .. part]) == 1 then redis.call('RENAME', K['new:' .. part], K[part]) end
end
count('format', FORMAT, 'birth', BIRTH, 'epoch', EPOCH, 'writer', WRITER, 'sequence', ARGV[7])
if ARGV[6] == '1' then redis.call('HSET', K.meta, 'queues', '1') else redis.call('HDEL', K.meta, 'queues') end
if mark then reach(mark) end
return {'ok'}
""".replace("FORMAT", str(FORMAT))
)

#: Let go: the lease ends now.
RELEASE: Final = _script("""
if redis.call('GET', K.owner) == WRITER then redis.call('DEL', K.owner) end
return {'ok'}
""")

SCRIPTS: Final = (CLAIM, SYNC, APPLY, RELIEVE, RENEW, STAGE, SWAP, RELEASE)
