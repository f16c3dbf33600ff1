package postgres

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"noncegate/nonce"
)

var _ nonce.Adviser = (*Store)(nil)

const (
	adviseSettings = `
SELECT name, setting FROM pg_settings WHERE name IN ('full_page_writes', 'autovacuum', 'archive_mode', 'data_checksums', 'synchronous_standby_names',
    'max_connections', 'superuser_reserved_connections')`
	// Of another role's replication only those with the role pg_monitor read the state.
	adviseReplicas = `
SELECT count(*), count(*) FILTER (WHERE sync_state IN ('sync', 'quorum')), count(*) FILTER (WHERE sync_state IS NULL) FROM pg_stat_replication`
	adviseActivity = `
SELECT (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'), store_millis(),
    coalesce((SELECT extract(epoch FROM clock_timestamp() - min(xact_start))::bigint FROM pg_stat_activity
        WHERE backend_type = 'client backend' AND datname = current_database()), 0),
    (SELECT age(datfrozenxid) FROM pg_database WHERE datname = current_database())`
)

const (
	clockApart = time.Second      // that a server's clock may differ from this machine's
	oldestOpen = 10 * time.Minute // how long a transaction may be open
	agedXIDs   = 1_000_000_000    // of the two thousand million after which PostgreSQL takes no writes
	fullServer = 90               // percent of the connections that a server may have
)

// Advise implements nonce.Adviser.
func (s *Store) Advise(ctx context.Context) []nonce.Advice {
	is := make(map[string]string)
	var replicas, synchronous, hidden int
	var sessions int
	var now, open, age int64
	began := time.Now()
	err := s.moment(ctx, "look over the server", func(b *pgx.Batch) {
		b.Queue(adviseActivity).QueryRow(func(row pgx.Row) error { return row.Scan(&sessions, &now, &open, &age) })
		b.Queue(adviseSettings).Query(func(rows pgx.Rows) error {
			var name, setting string
			_, err := pgx.ForEachRow(rows, []any{&name, &setting}, func() error { is[name] = setting; return nil })
			return err
		})
		b.Queue(adviseReplicas).QueryRow(func(row pgx.Row) error { return row.Scan(&replicas, &synchronous, &hidden) })
	})
	if err != nil {
		return []nonce.Advice{{
			ID: "postgres-unread", What: "PostgreSQL could not be looked over: " + err.Error(),
			Why: "What is wrong with its settings is not known.", Do: "Look again; if it stays, look whether the server is reached and what its log says.",
		}}
	}
	list := ofDurability(is, replicas, synchronous, hidden)
	if by := apart(now, began, time.Now()); by > clockApart {
		list = append(list, nonce.Advice{
			ID: "postgres-clock", Urgent: true, What: fmt.Sprintf("the clock of PostgreSQL and that of this machine differ by %v", by),
			Why: "Holds and leases end by PostgreSQL's clock: a clock that is set jumps over deadlines.",
			Do:  "Run a time service (chrony or ntpd) on both machines.",
		})
	}
	most, _ := strconv.Atoi(is["max_connections"])
	reserved, _ := strconv.Atoi(is["superuser_reserved_connections"])
	if most -= reserved; most > 0 && sessions*100 >= most*fullServer {
		list = append(list, nonce.Advice{
			ID: "postgres-connections", Urgent: true, What: fmt.Sprintf("PostgreSQL has %d of %d connections", sessions, most),
			Why: "A gateway that gets none answers unavailable.", Do: "Raise max_connections, or lower pool_max_conns of its clients.",
		})
	}
	if open > int64(oldestOpen/time.Second) {
		list = append(list, nonce.Advice{
			ID: "postgres-open", What: fmt.Sprintf("a transaction of this database is open for %v", time.Duration(open)*time.Second),
			Why: "No dead row is removed while it is open, so that tables grow and commits become slower.",
			Do:  "Find it in pg_stat_activity (xact_start), and end it with pg_terminate_backend.",
		})
	}
	if age > agedXIDs {
		list = append(list, nonce.Advice{
			ID: "postgres-wraparound", Urgent: true, What: fmt.Sprintf("the oldest row of the database is %d transactions old", age),
			Why: "At two thousand million PostgreSQL takes no more writes.",
			Do:  "Let VACUUM run: look for open transactions, prepared ones and replication slots that hold it back.",
		})
	}
	return list
}

// apart is by how much a clock that was read between two moments of ours is before or after them.
func apart(millis int64, began, ended time.Time) time.Duration {
	read := time.UnixMilli(millis)
	return max(began.Truncate(time.Millisecond).Sub(read), read.Sub(ended), 0)
}

// ofDurability is about settings and replicas by which acknowledged commits may be lost.
func ofDurability(is map[string]string, replicas, synchronous, hidden int) (list []nonce.Advice) {
	if is["full_page_writes"] == "off" {
		list = append(list, nonce.Advice{
			ID: "postgres-pages", Urgent: true, What: "PostgreSQL runs with full_page_writes=off",
			Why: "A crash may leave half of a page, and with it rows that no log repairs.", Do: "Set full_page_writes=on and reload.",
		})
	}
	if is["autovacuum"] == "off" {
		list = append(list, nonce.Advice{
			ID: "postgres-vacuum", Urgent: true, What: "PostgreSQL runs with autovacuum=off",
			Why: "Each commit leaves dead rows: tables grow and commits become slower.", Do: "Set autovacuum=on and reload.",
		})
	}
	if is["data_checksums"] == "off" {
		list = append(list, nonce.Advice{
			ID: "postgres-checksums", What: "the files of PostgreSQL have no checksums",
			Why: "A disk that returns what was not written is not noticed.", Do: "Stop it in a quiet hour and run pg_checksums --enable.",
		})
	}
	switch {
	case replicas == 0 && is["archive_mode"] == "off":
		list = append(list, nonce.Advice{
			ID: "postgres-alone", What: "PostgreSQL has no replica that is connected and archives no log",
			Why: "With its disk everything is lost that was handed out since the last backup.",
			Do:  "Set up a synchronous replica, or an archive of the write-ahead log.",
		})
	case replicas > 0 && synchronous == 0 && hidden == 0:
		list = append(list, nonce.Advice{
			ID: "postgres-asynchronous", What: fmt.Sprintf("none of the %d replicas of PostgreSQL is synchronous", replicas),
			Why: "A failover may lose commits that were acknowledged: their signers stop until somebody raises their floors.",
			Do:  "Set synchronous_standby_names (with Patroni: synchronous_mode).",
		})
	case replicas == 0 && is["synchronous_standby_names"] != "":
		list = append(list, nonce.Advice{
			ID: "postgres-standby-away", Urgent: true, What: "PostgreSQL waits for a synchronous replica, and none is connected",
			Why: "Commits wait until there is one.", Do: "Start the replica, or take it out of synchronous_standby_names.",
		})
	}
	return list
}
