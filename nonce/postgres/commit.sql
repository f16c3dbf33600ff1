{{- /*
The commit of PostgreSQL: one statement for any number of signers and shards. statement.go makes of this
text one statement for each form.

    .IDs         the form has request ids and writes that only compare
    .All         it has everything but shipments: also new signers, lists of deadlines and of chains to watch
    .Ships       it is a shipment
    .SkipLocked  rows that another transaction writes are left out, and not waited for
    .Basic       mode basic: whichever node owns the shard, and the row gets token 0

The parameters: $1 the node, $2 its incarnation, $3 the shards, $4 a byte string with everything that
has no fixed width (the n-th element of an array of texts would cost n steps), $5 the writes, $6 the rows of
the history, $7 the request ids, each an array of numbers with one record behind the other; of a shipment $8
a record for each shard, $9 the grant and $10 the longest hold, in milliseconds. o is where the record of a write
begins. W, X and K are numbers of the write at o, x.o and k.o by their names; Past, Ask and Ship those of a
row of the history, of a request id, and of a shard.

A number is read where it is used: a row that is made of them first is copied from part to part. Every
join is a nested loop into a primary key or a unique index, driven by the writes, whatever the tables'
sizes were when the statement was prepared (runtimeParams). The conditions o + 0 = o tell the planner, which
takes any series for a thousand rows, to expect few.
*/ -}}
WITH c AS MATERIALIZED (
    SELECT store_millis() AS now, $1::text AS node, $2::bigint AS incarnation,
        length($4::bytea) + cardinality($5::bigint[]) + cardinality($6::bigint[]) + cardinality($7::bigint[]) AS size),

{{/* The rows of the shards. No node takes one of them before the commit has ended. */ -}}
locked AS MATERIALIZED (
    SELECT s.shard_id, s.fencing_token * 2 + s.performance::int AS belief
    FROM shard s
    WHERE s.shard_id = ANY ($3::int[]){{if not .Basic}} AND s.owner_node = $1 AND s.owner_incarnation = $2{{end}}
    ORDER BY s.shard_id
    FOR {{if .Ships}}NO KEY UPDATE{{else}}SHARE{{end}}),

{{/* Of each shard of $3, in its order, the belief that is true; NULL: it is not the writer's. */ -}}
mine AS MATERIALIZED (
    SELECT ARRAY (
        SELECT (SELECT l.belief FROM locked l WHERE l.shard_id = a.id)
        FROM unnest($3::int[]) WITH ORDINALITY a(id, place)
        ORDER BY place) AS beliefs),

{{define "mine"}}(SELECT beliefs FROM mine)[{{.W.place}}]{{if .Basic}} % 2 = 0{{else}} = {{.W.belief}}{{end}}{{end -}}
{{define "token"}}{{if .Basic}}0{{else}}{{.W.belief}} / 2{{end}}{{end -}}
{{define "writes"}}FROM generate_series(0, cardinality($5::bigint[]) - 1, {{.Step}}) o{{end -}}
{{define "in time"}}{{.W.not_before}} <= (SELECT now FROM c){{end -}}

updated AS (
    UPDATE signer s SET version = s.version + {{.W.rise}}, fencing_token = {{template "token" .}}, next_nonce = {{.W.next}}, floor = {{.W.floor}},
        live = {{.Live}}, updated_at = (SELECT now FROM c), ceiling = greatest(s.ceiling, {{.W.ceiling}}), epoch = greatest(s.epoch, {{.W.epoch}})
    {{template "writes" .}}{{if .SkipLocked}}, LATERAL (SELECT 1 FROM signer f WHERE f.signer = {{.Name}} FOR NO KEY UPDATE SKIP LOCKED) free{{end}}
    WHERE o + 0 = o{{if .IDs}} AND {{.W.kind}} = 1{{end}} AND s.signer = {{.Name}}
        AND s.version = {{.W.version}}
        AND {{template "in time" .}}
        AND {{template "mine" .}}
{{- if .IDs}}
        AND ({{.W.ask_lo}} = {{.W.ask_hi}} OR NOT EXISTS (
            {{- /* Each id is looked up by the whole of the key, for which the planner needs the LIMIT. */}}
            SELECT 1 FROM (SELECT generate_series({{.W.ask_lo}}, {{.W.ask_hi}} - 1) AS q) q, LATERAL (
                SELECT 1 FROM signer_request known WHERE known.signer_id = s.signer_id AND known.request_id = {{.AskID}} LIMIT 1) known))
{{- end}}
        AND ({{.W.next}} >= s.next_nonce AND {{.W.floor}} >= s.floor OR broken('the cursor or the floor of a signer falls'))
    RETURNING o, s.signer_id, s.shard_id),

{{if .All -}}
{{/* The records of the signers that are to be inserted, and their names, in order. */ -}}
new AS MATERIALIZED (
    SELECT array_agg(o) AS places, array_agg({{.Name}}) AS names
    {{template "writes" .}}
    WHERE o + 0 = o AND {{.W.kind}} = 2
        AND {{template "in time" .}}
        AND {{template "mine" .}}
        AND NOT EXISTS (SELECT 1 FROM signer s WHERE s.signer = {{.Name}} AND s.version > 0)),

inserted AS (
    INSERT INTO signer AS s (signer, shard_id, version, fencing_token, next_nonce, floor, live, updated_at, ceiling, epoch)
    SELECT {{.Name}}, ($3::int[])[{{.W.place}}], {{.W.rise}}, {{template "token" .}}, {{.W.next}}, {{.W.floor}}, {{.Live}}, (SELECT now FROM c), {{.W.ceiling}}, {{.W.epoch}}
    FROM unnest((SELECT places FROM new)) o
    ON CONFLICT (signer) DO UPDATE SET version = excluded.version, fencing_token = excluded.fencing_token, next_nonce = excluded.next_nonce,
        floor = excluded.floor, live = excluded.live, updated_at = excluded.updated_at,
        ceiling = greatest(s.ceiling, excluded.ceiling), epoch = greatest(s.epoch, excluded.epoch)
    WHERE s.version = 0
    RETURNING s.signer, s.signer_id, s.shard_id),
{{end}}
{{/* What was written. All else depends on it. The record of an inserted row is found by its name. */ -}}
written AS MATERIALIZED (
    SELECT * FROM updated
{{- if .All}}
    UNION ALL
    SELECT (SELECT places FROM new)[width_bucket(i.signer, (SELECT names FROM new))] AS o, i.signer_id, i.shard_id FROM inserted i
{{- end}}),

{{define "past"}}INSERT INTO signer_history AS h (signer_id, nonce, attempt, holder, tx_hashes, reason, at)
    SELECT x.signer_id, {{.Past.nonce}}, {{.Past.attempt}}, {{.Past.holder}}, {{.PastHashes}}, {{.PastReason}}, (SELECT now FROM c)
    FROM written x, generate_series({{.X.past_lo}}, {{.X.past_hi}} - 1) p WHERE p + 0 = p{{end -}}

history AS (
    {{template "past" .}}{{if .All}} AND {{.Past.again}} = 0),

{{/* Of these there may be a row, of no higher attempt. */ -}}
history_again AS (
    {{template "past" .}} AND {{.Past.again}} = 1
    ON CONFLICT (signer_id, nonce) DO UPDATE SET attempt = excluded.attempt, holder = excluded.holder, tx_hashes = excluded.tx_hashes,
        reason = excluded.reason, at = excluded.at
    WHERE h.attempt <= excluded.attempt OR broken('a nonce was consumed with a higher attempt'){{end}})

{{- if .IDs}},

requests AS (
    INSERT INTO signer_request (signer_id, request_id, request_hash, nonces, created_at)
    SELECT x.signer_id, {{.AskID}}, {{.AskHash}}, {{.AskNonces}}, (SELECT now FROM c)
    FROM written x, generate_series({{.X.ask_lo}}, {{.X.ask_hi}} - 1) q WHERE q + 0 = q),

{{/* What is only compared, and is as it is believed. */ -}}
checked AS MATERIALIZED (
    SELECT o, s.signer_id, s.shard_id
    {{template "writes" .}} LEFT JOIN signer s ON s.signer = {{.Name}}
    WHERE o + 0 = o AND {{.W.kind}} = 3 AND coalesce(s.version, 0) = {{.W.version}} AND {{template "mine" .}})
{{- end}}

{{- if .All}},

{{/* Everything that a list may depend on. */ -}}
settled AS NOT MATERIALIZED (SELECT * FROM written UNION ALL SELECT * FROM checked),

{{/* What may leave a list: the entry of a checked signer stays while another transaction changes the
     signer, whose new hold may rely on the entry. */ -}}
quiet AS MATERIALIZED (
    SELECT o, signer_id FROM written
    UNION ALL
    SELECT k.o, k.signer_id FROM checked k, LATERAL (
        SELECT 1 FROM signer f WHERE f.signer_id = k.signer_id AND f.version = {{.K.version}} FOR SHARE SKIP LOCKED) free
    WHERE {{.K.due_at}} < 0 OR {{.K.watch}} < 0),

unlisted AS (
    DELETE FROM signer_due d USING quiet x
    WHERE d.signer_id = x.signer_id AND {{.X.due_at}} < 0 AND d.due_at <= (SELECT now FROM c)),

due AS (
    INSERT INTO signer_due AS d (signer_id, shard_id, due_at)
    SELECT x.signer_id, x.shard_id, {{.X.due_at}} FROM settled x WHERE {{.X.due_at}} > 0 AND x.signer_id IS NOT NULL
    ON CONFLICT (signer_id) DO UPDATE SET due_at = excluded.due_at
    WHERE excluded.due_at < d.due_at OR d.due_at <= (SELECT now FROM c)),

unwatched AS (
    DELETE FROM signer_watch d USING quiet x WHERE d.signer_id = x.signer_id AND {{.X.watch}} < 0),

watched AS (
    INSERT INTO signer_watch AS d (signer_id, shard_id, kind, nonce, since)
    SELECT x.signer_id, x.shard_id, {{.X.watch}}, {{.X.watch_nonce}}, {{.X.watch_since}} FROM settled x
    WHERE {{.X.watch}} > 0 AND x.signer_id IS NOT NULL
        AND ({{.X.watch}} > 1 OR NOT EXISTS (SELECT 1 FROM signer_watch e WHERE e.signer_id = x.signer_id))
    ON CONFLICT (signer_id) DO UPDATE SET kind = excluded.kind, nonce = excluded.nonce, since = excluded.since
    WHERE excluded.kind > 1 AND (d.kind, d.nonce, d.since) IS DISTINCT FROM (excluded.kind, excluded.nonce, excluded.since))
{{- end}}

{{- if .Ships}},

{{/* How many writes of each place of a shard were applied, or are as they are believed. */ -}}
counted AS MATERIALIZED (
    SELECT {{.X.place}} AS place, count(*) AS writes FROM settled x GROUP BY 1),

{{/* The shards that are shipped: whole, if all of their writes were counted. */ -}}
shipped AS (
    UPDATE shard s SET log_shipped = CASE WHEN w.whole THEN greatest(s.log_shipped, w.head) ELSE s.log_shipped END,
        performance = NOT (w.whole AND w.off = 1),
        grant_until = greatest(s.grant_until, (SELECT now FROM c) + $9::bigint),
        longest_hold = greatest(s.longest_hold, $10::bigint)
    FROM (
        SELECT a.id, {{.Ship.head}} AS head, {{.Ship.off}} AS off,
            {{.Ship.writes}} = coalesce((SELECT t.writes FROM counted t WHERE t.place = a.place), 0) AS whole
        FROM unnest($3::int[]) WITH ORDINALITY a(id, place)
        WHERE (SELECT beliefs FROM mine)[a.place] = {{.Ship.belief}}
        OFFSET 0) w
    WHERE s.shard_id = w.id
    RETURNING s.shard_id, w.whole)
{{- end}}

SELECT c.now, mine.beliefs,
    (SELECT array_agg(x.o) FROM written x),
    {{if .IDs}}(SELECT array_agg(x.o) FROM checked x){{else}}NULL::int[]{{end}}
{{- if .Ships}},
    (SELECT array_agg(shard_id) FROM shipped),
    (SELECT array_agg(shard_id) FROM shipped WHERE whole)
{{- end}}
FROM c CROSS JOIN mine
