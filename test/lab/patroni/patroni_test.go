//go:build unix

package patroni

import (
	"context"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"noncegate/test/lab/expect"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestWhatIsMissingIsSaidInASentence(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if _, err := Start(t.Context()); err == nil || !strings.Contains(err.Error(), "apt-get install patroni etcd-server") {
		t.Errorf("without Patroni: %v, want what to install", err)
	}
}

// The very files of deploy/patroni make a cluster: a commit on its leader is on the new one after the leader was killed, the killed member
// comes back as a standby, and a restore has no more than the backup.
func TestLongAClusterOfTheFilesOfDeployFailsOverAndIsRestored(t *testing.T) {
	ctx := t.Context()
	c, err := Start(ctx)
	expect.Must(t, err)
	t.Cleanup(func() { expect.Check(t, c.Close()) })
	put := func(sql string) {
		t.Helper()
		conn, err := pgx.Connect(ctx, c.URL("postgres"))
		expect.Must(t, err)
		_, err = conn.Exec(ctx, sql)
		expect.Must(t, err)
		expect.Check(t, conn.Close(context.WithoutCancel(ctx)))
	}
	put(`CREATE TABLE rows AS SELECT 1 AS n`)
	expect.Must(t, c.Backup(ctx))
	put(`INSERT INTO rows VALUES (2)`)
	first, err := c.AwaitLeader(ctx)
	expect.Must(t, err)
	expect.Must(t, first.Kill())
	second, err := c.AwaitLeader(ctx)
	expect.Must(t, err)
	rows := func(m *Member) (n int) {
		expect.Must(t, m.Ask(ctx, &n, `SELECT sum(n) FROM rows`))
		return n
	}
	if second == first || rows(second) != 3 {
		t.Errorf("%s leads after %s, and has %d, want what was committed", second.Name, first.Name, rows(second))
	}
	expect.Must(t, first.Start())
	expect.Must(t, c.AwaitHealthy(ctx))
	expect.Must(t, c.SetMode(ctx, Asynchronous))
	expect.Must(t, c.Switchover(ctx))
	expect.Must(t, c.AwaitHealthy(ctx))
	expect.Must(t, c.Restore(ctx))
	expect.Must(t, c.AwaitHealthy(ctx))
	if got := rows(c.Members[0]); got != 1 {
		t.Errorf("after the restore there is %d, want what the backup has", got)
	}
}
