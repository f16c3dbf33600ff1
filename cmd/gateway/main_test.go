package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"noncegate/test/lab/expect"
	"noncegate/test/lab/pgtest"
)

// pg is where tests have databases.
var pg *pgtest.Server

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m, &pg, goleak.IgnoreCurrent())) }

// outcome is what one run of the program showed.
type outcome struct {
	code           int
	stdout, stderr string
	cfg            *Config // what serve was given, nil when it was not called
	migrated       *StoreConfig
}

// runWith runs the program around a serve and a migrate that end with err.
func runWith(t *testing.T, err error, args ...string) outcome {
	t.Helper()
	var (
		o           outcome
		out, errOut bytes.Buffer
	)
	p := &program{
		stdout: &out, stderr: &errOut,
		serve: func(_ context.Context, cfg *Config, _ *slog.Logger, _ io.Writer) error {
			o.cfg = cfg
			return err
		},
		migrate: func(_ context.Context, cfg *StoreConfig, _ *slog.Logger) error {
			o.migrated = cfg
			return err
		},
	}
	o.code = p.run(t.Context(), args)
	o.stdout, o.stderr = out.String(), errOut.String()
	return o
}

func runArgs(t *testing.T, args ...string) outcome { return runWith(t, nil, args...) }

// settings writes a configuration file and returns its path.
func settings(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "gateway.yaml")
	expect.Must(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func TestGatewayAlonePrintsItsHelpAndServesNothing(t *testing.T) {
	o := runArgs(t)
	if o.code != exitOK || o.cfg != nil || o.stderr != "" || o.stdout != runArgs(t, "--help").stdout {
		t.Errorf("exit %d, served %t, stderr %q, stdout %s", o.code, o.cfg != nil, o.stderr, o.stdout)
	}
	if commands, flags := strings.Index(o.stdout, "Commands:"), strings.Index(o.stdout, "Flags:"); commands < 0 || flags < commands || strings.Count(o.stdout, "\n") > 40 {
		t.Errorf("want a page, the commands first: %s", o.stdout)
	}
}

func TestAVariableThatIsNoSettingStopsTheStart(t *testing.T) {
	for name, want := range map[string]string{
		"NONCEGATE_HOLDTTL":                  "NONCEGATE_HOLDTTL in the environment is no setting; did you mean NONCEGATE_HOLD_TTL?",
		"NONCEGATE_QUANTUM":                  "NONCEGATE_QUANTUM in the environment is no setting; gateway serve --help lists them",
		"NONCEGATE_TOKEN":                    "", // of gateway call
		"NONCEGATE_ADMIN_PORT_8081_TCP_ADDR": "", // these are of Kubernetes, for services
		"NONCEGATE_SERVICE_PORT_WSS":         "",
		"NONCEGATE_PORT":                     "",
		"MY_NONCEGATE_HOLDTTL":               "",
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(name, "1")
			o := runArgs(t, "serve")
			if refused := o.code == exitUsage && o.cfg == nil && o.stderr == "gateway: "+want+"\n"; refused != (want != "") || want == "" && o.cfg == nil {
				t.Errorf("exit %d, served %t, stderr %q, want %q", o.code, o.cfg != nil, o.stderr, want)
			}
		})
	}
}

func TestWhatEndsServingIsSaid(t *testing.T) {
	t.Setenv("NONCEGATE_NODE_ID", "n1")
	for err, want := range map[error]outcome{
		errors.New("the store is away"):               {code: exitFailure, stderr: "gateway: the store is away\n"},
		settingErrorf("node-id", "%q is taken", "n1"): {code: exitUsage, stderr: "gateway: --node-id \"n1\" is taken (from NONCEGATE_NODE_ID)\n"},
	} {
		if o := runWith(t, err, "serve"); o.code != want.code || o.stderr != want.stderr {
			t.Errorf("exit %d, stderr %q, want %d, %q", o.code, o.stderr, want.code, want.stderr)
		}
	}
}

func TestMigrateTakesTheFileOfServe(t *testing.T) {
	path := settings(t, "store: postgres://db/nonces\nhold-ttl: 5s\n")
	o := runArgs(t, "migrate", "--config", path)
	if o.code != exitOK || o.migrated == nil || o.migrated.Store != "postgres://db/nonces" {
		t.Errorf("exit %d, migrated %+v, stderr %q", o.code, o.migrated, o.stderr)
	}
}

func TestVersionPrintsOneLine(t *testing.T) {
	o := runArgs(t, "version")
	if o.code != exitOK || !strings.HasPrefix(o.stdout, "gateway ") || strings.Count(o.stdout, "\n") != 1 {
		t.Errorf("exit %d, stdout %q", o.code, o.stdout)
	}
	for _, args := range [][]string{{"--version"}, {"serve", "--version"}, {"serve", "--workers=0", "--version"}} {
		if same := runArgs(t, args...); same.code != exitOK || same.stdout != o.stdout || same.stderr != "" || same.cfg != nil {
			t.Errorf("%q: exit %d, stdout %q, stderr %q", args, same.code, same.stdout, same.stderr)
		}
	}
}
