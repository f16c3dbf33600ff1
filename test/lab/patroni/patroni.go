//go:build unix

package patroni

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"go.yaml.in/yaml/v3"

	"noncegate/test/lab/gateway"
	"noncegate/test/lab/guarded"
	"noncegate/test/lab/pgtest"
)

// hosts is how many members of Patroni, and of etcd, there are.
const hosts = 3

// Cluster is a PostgreSQL of three members. Its methods may be called from any goroutine.
type Cluster struct {
	Members []*Member

	room     *guarded.Room
	patroni  string // paths of programs
	etcd     string
	bin      string // where PostgreSQL's are
	password string // of every account

	client []string // where etcd listens for clients

	mu          sync.Mutex // guards what follows
	etcds       []*guarded.Process
	certificate string
}

// Missing says what is not installed; nil: all is there.
func Missing() error {
	var missing []string
	for program, of := range map[string]string{"patroni": "patroni", "etcd": "etcd-server"} {
		if _, err := exec.LookPath(program); err != nil {
			missing = append(missing, of)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return fmt.Errorf("the tests of a PostgreSQL that fails over need Patroni and etcd, which are not in PATH: install the packages %s (Debian, Ubuntu: apt-get install patroni etcd-server)",
		strings.Join(missing, " and "))
}

// Start makes a cluster with synchronous_mode, as deploy/patroni has it, and returns once all members are in it. The caller must Close.
func Start(ctx context.Context) (*Cluster, error) {
	if err := Missing(); err != nil {
		return nil, err
	}
	c := &Cluster{password: rand.Text(), etcds: make([]*guarded.Process, hosts)}
	var err error
	if c.bin, err = pgtest.BinDir(); err == nil {
		err = c.setUp(ctx)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start Patroni: %w", err), c.Close())
	}
	return c, nil
}

func (c *Cluster) setUp(ctx context.Context) error {
	cred, err := guarded.Account("postgres", "nobody")
	if err != nil {
		return err
	}
	if c.room, err = guarded.OpenFor("patroni", cred, syscall.SIGTERM); err != nil {
		return err
	}
	if c.patroni, err = exec.LookPath("patroni"); err != nil {
		return err
	}
	if c.etcd, err = exec.LookPath("etcd"); err != nil {
		return err
	}
	if err := errors.Join(c.certify(), c.setUpEtcd()); err != nil {
		return err
	}
	for i := range hosts {
		if err := c.addMember(i); err != nil {
			return err
		}
	}
	// One after the other: the first makes the cluster, and those that copy it do not wait for one another's turn to.
	for i, m := range c.Members {
		if err := m.Start(); err != nil {
			return err
		}
		if i == 0 {
			if _, err := c.AwaitLeader(ctx); err != nil {
				return err
			}
		}
	}
	return c.AwaitHealthy(ctx)
}

// Close ends all and removes the folder. It may be called twice.
func (c *Cluster) Close() (err error) {
	for _, m := range c.Members {
		err = errors.Join(err, m.Replication.Close())
	}
	if c.room != nil {
		err = errors.Join(err, c.room.Close())
	}
	return err
}

// Dir is the folder of everything, with the logs.
func (c *Cluster) Dir() string { return c.room.Dir() }

// URL addresses a database of whichever member is the primary.
func (c *Cluster) URL(db string) string {
	return c.URLAs(url.UserPassword("postgres", c.password), db, url.Values{})
}

// URLAs is URL as another role, with further parameters. Without sslmode among them it is without TLS.
func (c *Cluster) URLAs(as *url.Userinfo, db string, params url.Values) string {
	var all []string
	for _, m := range c.Members {
		all = append(all, m.addr())
	}
	if !params.Has("sslmode") {
		params.Set("sslmode", "disable")
	}
	params.Set("target_session_attrs", "read-write")
	params.Set("connect_timeout", "2")
	u := url.URL{Scheme: "postgres", User: as, Host: strings.Join(all, ","), Path: "/" + db, RawQuery: params.Encode()}
	return u.String()
}

// setUpEtcd starts etcd.
func (c *Cluster) setUpEtcd() error {
	var peers, all []string
	for i := range hosts {
		client, err := guarded.FreeAddr()
		if err != nil {
			return err
		}
		peer, err := guarded.FreeAddr()
		if err != nil {
			return err
		}
		c.client, peers = append(c.client, client), append(peers, "http://"+peer)
		all = append(all, fmt.Sprintf("etcd%d=http://%s", i+1, peer))
	}
	for i := range hosts {
		err := c.render("etcd.yaml", fmt.Sprintf("etcd%d.yaml", i+1), map[string]any{
			"name": fmt.Sprintf("etcd%d", i+1), "data-dir": filepath.Join(c.room.Dir(), fmt.Sprintf("etcd%d", i+1)),
			"listen-client-urls": "http://" + c.client[i], "advertise-client-urls": "http://" + c.client[i],
			"listen-peer-urls": peers[i], "initial-advertise-peer-urls": peers[i], "initial-cluster": strings.Join(all, ","),
		})
		if err == nil {
			err = c.StartEtcd(i)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// StartEtcd starts a member of etcd that was killed; it does not wait for it.
func (c *Cluster) StartEtcd(i int) (err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	name := fmt.Sprintf("etcd%d", i+1)
	c.etcds[i], err = c.room.Start(name+".log", guarded.PlainEnv, c.etcd, "--config-file", filepath.Join(c.room.Dir(), name+".yaml"))
	return err
}

// KillEtcd ends a member of etcd at once.
func (c *Cluster) KillEtcd(i int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.etcds[i].End(syscall.SIGKILL, endTimeout)
}

// addMember makes a member that is not started yet.
func (c *Cluster) addMember(i int) error {
	m := &Member{Name: fmt.Sprintf("db%d", i+1), c: c}
	var err error
	if m.port, err = guarded.FreePort(); err != nil {
		return err
	}
	if m.rest, err = guarded.FreePort(); err != nil {
		return err
	}
	if m.Replication, err = pgtest.NewProxy(m.addr()); err != nil {
		return err
	}
	c.Members = append(c.Members, m)
	if err := c.makeDir(m.Name); err != nil {
		return err
	}
	return c.render("patroni.yaml", m.Name+".yaml", map[string]any{
		"name": m.Name, "etcd3.hosts": strings.Join(c.client, ","),
		"restapi.listen": m.restAddr(), "restapi.connect_address": m.restAddr(), "restapi.authentication.password": c.password,
		"postgresql.listen": m.addr(), "postgresql.connect_address": m.Replication.Addr(),
		"postgresql.bin_dir": c.bin, "postgresql.data_dir": m.dataDir(), "postgresql.pgpass": filepath.Join(c.room.Dir(), m.Name, "pgpass"),
		"postgresql.parameters": map[string]string{
			"unix_socket_directories": c.room.Dir(),
			"ssl":                     "on",
			"ssl_cert_file":           filepath.Join(c.room.Dir(), certFile),
			"ssl_key_file":            filepath.Join(c.room.Dir(), keyFile),
		},
		"postgresql.pg_hba": []string{
			"local all all peer", "host replication replicator 127.0.0.1/32 scram-sha-256", "host all all 127.0.0.1/32 scram-sha-256",
		},
		"postgresql.authentication.superuser.password":   c.password,
		"postgresql.authentication.replication.password": c.password,
		"postgresql.authentication.rewind.password":      c.password,
		"watchdog.mode": "off", // one for all members would reset this machine
	})
}

func (c *Cluster) makeDir(name string) error {
	dir := filepath.Join(c.room.Dir(), name)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	info, err := os.Stat(c.room.Dir())
	if err != nil {
		return err
	}
	of := info.Sys().(*syscall.Stat_t)
	return os.Chown(dir, int(of.Uid), int(of.Gid))
}

// render writes a file of deploy/patroni into the folder, with other values. What is replaced must be there.
func (c *Cluster) render(from, name string, values map[string]any) error {
	module, err := gateway.Module(context.Background())
	if err != nil {
		return err
	}
	text, err := os.ReadFile(filepath.Join(module, "deploy", "patroni", from))
	if err != nil {
		return err
	}
	var doc map[string]any
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return fmt.Errorf("deploy/patroni/%s: %w", from, err)
	}
	for path, value := range values {
		if err := replace(doc, strings.Split(path, "."), value); err != nil {
			return fmt.Errorf("deploy/patroni/%s: %s: %w", from, path, err)
		}
	}
	if text, err = yaml.Marshal(doc); err != nil {
		return err
	}
	return c.room.WriteFile(name, string(text))
}

func replace(doc map[string]any, path []string, value any) error {
	was, ok := doc[path[0]]
	if !ok {
		return errors.New("it has no such line")
	}
	if len(path) == 1 {
		doc[path[0]] = value
		return nil
	}
	below, ok := was.(map[string]any)
	if !ok {
		return errors.New("it is no section")
	}
	return replace(below, path[1:], value)
}

// run runs a program of PostgreSQL to its end.
func (c *Cluster) run(name string, args ...string) error {
	p, err := c.room.Start(name+".log", guarded.PlainEnv, append([]string{filepath.Join(c.bin, name)}, args...)...)
	if err != nil {
		return err
	}
	if err := p.Err(); err != nil {
		return fmt.Errorf("%s: %w\n%s", name, err, p.LogTail(2000))
	}
	return nil
}
