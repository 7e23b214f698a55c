-- A database of version 4 of the schema, as the code of that version wrote it: what this one has to bring up to date.
PRAGMA auto_vacuum = INCREMENTAL;
PRAGMA page_size = 4096;
PRAGMA application_id = 1145656145;
PRAGMA user_version = 4;
PRAGMA journal_mode = WAL;
BEGIN TRANSACTION;
CREATE TABLE "done" (
   "seq" INTEGER PRIMARY KEY,
   "id" TEXT NOT NULL,
   "scope" ANY NOT NULL,
   "queue" ANY,
   "ctime" INTEGER,
   "done_at" INTEGER NOT NULL,
   "crc" INTEGER NOT NULL
) STRICT;
INSERT INTO "done" VALUES(7,'DI00000000000000000000000000000000000000000005SQ','','queue',1700000000000000005,1700000000007,1021071874);
INSERT INTO "done" VALUES(9,'DI00000000000000000000000000000000000000000004SQ','0:group','log',1700000000000000004,1700000000007,3891257933);
INSERT INTO "done" VALUES(11,'DI00000000000000000000000000000000000000000004SQ',X'323AFE','log',1700000000000000004,1700000000007,4173446763);
CREATE TABLE "evictions" (
   "seq" INTEGER PRIMARY KEY,
   "id" TEXT NOT NULL,
   "reason" ANY NOT NULL,
   "queue" ANY,
   "ctime" INTEGER,
   "gone_at" INTEGER NOT NULL,
   "crc" INTEGER NOT NULL
) STRICT;
INSERT INTO "evictions" VALUES(8,'DI00000000000000000000000000000000000000000006SQ','expired','queue',1700000000000000006,1700000000007,2278032739);
CREATE TABLE "flushes" (
   "seq" INTEGER PRIMARY KEY,
   "flushed_at" INTEGER NOT NULL,
   "jobs" INTEGER NOT NULL,
   "crc" INTEGER NOT NULL
) STRICT;
CREATE TABLE "groups" (
   "seq" INTEGER PRIMARY KEY,
   "queue" ANY NOT NULL,
   "scope" ANY NOT NULL,
   "floor" TEXT NOT NULL,
   "began_at" INTEGER NOT NULL,
   "crc" INTEGER NOT NULL
) STRICT;
INSERT INTO "groups" VALUES(16,'log','0:group','{"01234567": 1700000000000000004}',1700000000007,868674183);
INSERT INTO "groups" VALUES(17,X'6C6F6720FF','','{"89abcdef": 5}',1700000000007,1241874481);
CREATE TABLE "jobs" (
   "seq" INTEGER PRIMARY KEY,
   "id" TEXT NOT NULL,
   "queue" ANY NOT NULL,
   "body" ANY NOT NULL,
   "state" INTEGER NOT NULL,
   "ctime" INTEGER NOT NULL,
   "expires_at" INTEGER NOT NULL,
   "requeue_at" INTEGER NOT NULL,
   "ttl_ms" INTEGER NOT NULL,
   "retry_ms" INTEGER NOT NULL,
   "delay_ms" INTEGER NOT NULL,
   "replicate" INTEGER NOT NULL,
   "flags" INTEGER NOT NULL,
   "nacks" INTEGER NOT NULL,
   "additional_deliveries" INTEGER NOT NULL,
   "order_key" INTEGER NOT NULL,
   "holders" TEXT,
   "fact_crc" INTEGER NOT NULL,
   "crc" INTEGER NOT NULL
, kind INTEGER NOT NULL DEFAULT 0, alias ANY) STRICT;
INSERT INTO "jobs" VALUES(1,'DI00000000000000000000000000000000000000000001SQ','queue','one',1,1700000000000000001,1700000601000,1700000061000,600000,60000,0,1,0,0,0,1700000000000000001,NULL,794429234,1155510288,0,NULL);
INSERT INTO "jobs" VALUES(2,'DI00000000000000000000000000000000000000000002SQ',X'6D61696C20FF',X'FF00',1,1700000000000000002,1700000601000,1700000061000,600000,60000,0,1,0,0,0,1700000000000000002,NULL,980647478,653089274,0,X'74776F20FF');
INSERT INTO "jobs" VALUES(3,'DI00000000000000000000000000000000000000000003SQ','queue','three',1,1700000000000000003,1700000601000,1700000070000,600000,60000,0,1,1,2,3,-5,'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb',2531629617,3635869705,0,'three');
INSERT INTO "jobs" VALUES(4,'DI00000000000000000000000000000000000000000004SQ','log','an event',1,1700000000000000004,1700000601000,1700000061000,600000,60000,0,1,0,0,0,1700000000000000004,NULL,2799955745,1079185232,1,NULL);
CREATE TABLE "leases" (
   "seq" INTEGER PRIMARY KEY,
   "id" TEXT NOT NULL,
   "scope" ANY NOT NULL,
   "deliveries" INTEGER NOT NULL,
   "worker" ANY NOT NULL,
   "leased_at" INTEGER NOT NULL,
   "crc" INTEGER NOT NULL
) STRICT;
INSERT INTO "leases" VALUES(14,'DI00000000000000000000000000000000000000000001SQ','',4,X'776F726B657220FF',1700000000007,1690092049);
INSERT INTO "leases" VALUES(15,'DI00000000000000000000000000000000000000000004SQ','1:other',1,'1700000090000',1700000000007,4168876599);
CREATE TABLE "meta" (
   "name" TEXT PRIMARY KEY,
   "value" TEXT NOT NULL,
   "crc" INTEGER NOT NULL
) STRICT;
INSERT INTO "meta" VALUES('queues','no',1167595664);
INSERT INTO "meta" VALUES('schema','0754e410',2304091525);
CREATE TABLE "pauses" (
   "seq" INTEGER PRIMARY KEY,
   "queue" ANY NOT NULL,
   "pause" INTEGER NOT NULL,
   "paused_at" INTEGER NOT NULL,
   "crc" INTEGER NOT NULL
) STRICT;
INSERT INTO "pauses" VALUES(10,'queue',1,1700000000007,3216764675);
INSERT INTO "pauses" VALUES(12,X'6D61696C20FF',3,1700000000007,379667995);
INSERT INTO "pauses" VALUES(13,X'6D61696C20FF',0,1700000000007,2628765366);
CREATE TABLE "policies" (
   "seq" INTEGER PRIMARY KEY,
   "queue" ANY NOT NULL,
   "field" TEXT NOT NULL,
   "counter" INTEGER NOT NULL,
   "node" TEXT NOT NULL,
   "set_at" INTEGER NOT NULL,
   "value" TEXT NOT NULL,
   "crc" INTEGER NOT NULL
) STRICT;
INSERT INTO "policies" VALUES(18,X'717565756520FF','pause',3,'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa',1700000000007,'{"pause": "in", "reason": "deploy", "owner": "ops"}',270755758);
CREATE UNIQUE INDEX jobs_by_id ON jobs (id);
CREATE INDEX jobs_by_queue ON jobs (queue, ctime);
CREATE INDEX jobs_by_ctime ON jobs (ctime);
CREATE INDEX jobs_by_state ON jobs (state, expires_at);
CREATE INDEX done_by_time ON done (done_at);
CREATE INDEX done_by_queue ON done (queue, done_at);
CREATE INDEX done_of_groups ON done (id) WHERE scope <> '';
CREATE INDEX evictions_by_time ON evictions (gone_at);
CREATE INDEX evictions_by_queue ON evictions (queue, gone_at);
CREATE INDEX pauses_by_queue ON pauses (queue);
CREATE VIEW "done_readable" AS SELECT seq, id, CASE typeof(scope) WHEN 'blob' THEN 'x''' || hex(scope) || '''' ELSE scope END AS scope, CASE typeof(queue) WHEN 'blob' THEN 'x''' || hex(queue) || '''' ELSE queue END AS queue, strftime('%Y-%m-%dT%H:%M:%fZ', (ctime / 1000000) / 1000.0, 'unixepoch') AS created, strftime('%Y-%m-%dT%H:%M:%fZ', done_at / 1000.0, 'unixepoch') AS done FROM done;
CREATE VIEW "evictions_readable" AS SELECT seq, id, CASE typeof(reason) WHEN 'blob' THEN 'x''' || hex(reason) || '''' ELSE reason END AS reason, CASE typeof(queue) WHEN 'blob' THEN 'x''' || hex(queue) || '''' ELSE queue END AS queue, strftime('%Y-%m-%dT%H:%M:%fZ', (ctime / 1000000) / 1000.0, 'unixepoch') AS created, strftime('%Y-%m-%dT%H:%M:%fZ', gone_at / 1000.0, 'unixepoch') AS gone FROM evictions;
CREATE INDEX jobs_by_alias ON jobs (queue, alias) WHERE alias IS NOT NULL;
CREATE UNIQUE INDEX leases_by_id ON leases (id, scope);
CREATE VIEW "jobs_readable" AS SELECT seq, id, CASE typeof(queue) WHEN 'blob' THEN 'x''' || hex(queue) || '''' ELSE queue END AS queue, CASE typeof(body) WHEN 'blob' THEN 'x''' || hex(body) || '''' ELSE body END AS body, CASE (SELECT value FROM meta WHERE name = 'queues') WHEN 'yes' THEN CASE state WHEN 0 THEN 'wait-repl' WHEN 1 THEN 'active' WHEN 2 THEN 'queued' WHEN 3 THEN 'acked' END END AS state, strftime('%Y-%m-%dT%H:%M:%fZ', (ctime / 1000000) / 1000.0, 'unixepoch') AS created, strftime('%Y-%m-%dT%H:%M:%fZ', expires_at / 1000.0, 'unixepoch') AS expires, strftime('%Y-%m-%dT%H:%M:%fZ', nullif(requeue_at, 0) / 1000.0, 'unixepoch') AS requeue, ttl_ms / 1000.0 AS ttl_s, retry_ms / 1000.0 AS retry_s, delay_ms / 1000.0 AS delay_s, replicate, nacks, additional_deliveries, holders, CASE kind WHEN 0 THEN 'work' WHEN 1 THEN 'log' END AS kind, CASE typeof(alias) WHEN 'blob' THEN 'x''' || hex(alias) || '''' ELSE alias END AS alias FROM jobs;
CREATE VIEW "leases_readable" AS SELECT seq, id, CASE typeof(scope) WHEN 'blob' THEN 'x''' || hex(scope) || '''' ELSE scope END AS scope, deliveries, CASE typeof(worker) WHEN 'blob' THEN 'x''' || hex(worker) || '''' ELSE worker END AS worker, strftime('%Y-%m-%dT%H:%M:%fZ', leased_at / 1000.0, 'unixepoch') AS leased FROM leases;
CREATE UNIQUE INDEX groups_by_name ON groups (queue, coalesce(substr(CAST(scope AS BLOB), instr(CAST(scope AS BLOB), x'3A')), x''));
CREATE VIEW "groups_readable" AS SELECT seq, CASE typeof(queue) WHEN 'blob' THEN 'x''' || hex(queue) || '''' ELSE queue END AS queue, CASE typeof(scope) WHEN 'blob' THEN 'x''' || hex(scope) || '''' ELSE scope END AS scope, CASE scope WHEN '' THEN 'flushed' ELSE 'begun' END AS event, (SELECT json_group_object(key, strftime('%Y-%m-%dT%H:%M:%fZ', value / 1000000 / 1000.0, 'unixepoch')) FROM json_each(floor)) AS floor, strftime('%Y-%m-%dT%H:%M:%fZ', began_at / 1000.0, 'unixepoch') AS began FROM groups;
CREATE UNIQUE INDEX policies_by_queue ON policies (queue, field);
CREATE VIEW "policies_readable" AS SELECT seq, CASE typeof(queue) WHEN 'blob' THEN 'x''' || hex(queue) || '''' ELSE queue END AS queue, field, value, counter, node, strftime('%Y-%m-%dT%H:%M:%fZ', set_at / 1000.0, 'unixepoch') AS set_time FROM policies;
COMMIT;
