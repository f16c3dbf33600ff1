package main

import (
	"bytes"
	"encoding/json"
	"net"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"

	"noncegate/test/lab/expect"
)

func TestDefaultsAreThePromisedOnes(t *testing.T) {
	got := runArgs(t, "serve").cfg
	want := &Config{
		Listen: "127.0.0.1:8080", AdminListen: "127.0.0.1:8081",
		MaxConnections: 10_000, MaxMessageBytes: 65_536, MaxReceiveBytes: 64 << 20, MaxBatch: 100, MaxInflight: 256, MaxInflightTotal: 16_384,
		PingInterval: 30 * time.Second, DrainTimeout: 20 * time.Second,
		AccessConfig: AccessConfig{
			JWTMethods: "ES256,EdDSA,RS256", JWTClaim: "sub", JWTLeeway: time.Minute, MissingOrigin: "allow", Audit: "refusals",
			AddressConnections: 1000, AddressRate: 50, MaxUnauthenticated: 1024, MaxHeaderBytes: 16_384,
			FirstMessageTimeout: 30 * time.Second, MessageTimeout: 20 * time.Second,
		},
		StoreConfig:      StoreConfig{Store: "sqlite:noncegate.db", StoreWait: 30 * time.Second},
		RequestRetention: 24 * time.Hour, ConsumedRetention: 168 * time.Hour,
		TLSConfig: TLSConfig{TLSClientAuth: "request", Console: "on", Pprof: "off"},
		Forward:   "on", ForwardQueue: 4096, ForwardTimeout: 5 * time.Second,
		Mode: "worker-queue", Workers: got.Workers, WorkerQueueCapacity: 4096, WorkerRejectPolicy: "fail-fast",
		LeaseTTL: 5 * time.Second, HoldTTL: time.Minute, MaxHold: 10 * time.Minute, MaxHolds: 256,
		MaxSigners: 1_000_000, MaxSignerBytes: 512 << 20, SweepInterval: time.Second,
		EngineConfig: EngineConfig{
			ShipSLA: time.Second, ShipInterval: 100 * time.Millisecond, EngineGrant: 45 * time.Second, EngineTimeout: time.Second, EngineRehearsal: 10 * time.Second, RedisLostAfter: 30 * time.Second,
		},
		ChainConfig: ChainConfig{
			ChainFinality: []string{"finalized"}, ChainWindow: []string{"16"}, ChainDelegatedWindow: []string{"1", "eip155:8453=4"}, EthReplace: []string{"same"}, UnknownTTL: 10 * time.Minute, ChainGapAfter: 30 * time.Second, ChainStuckAfter: 5 * time.Minute, UnknownOrphans: "refuse",
			ChainTimeout: 5 * time.Second, ChainLag: 3, ChainWait: 2 * time.Second, EthTake: "on", NewSigners: "allow", OtherChains: "warn",
		},
		WriteHighBytes: 65_536, WriteLowBytes: 16_384, WriteMaxBytes: 1_048_576,
		SlowAfter: 10 * time.Second, SlowPolicy: "pause,drop,kick", Backpressure: "on", WriteTimeout: 10 * time.Second,
		EncodeWorkers: got.EncodeWorkers, EncodeQueue: 16_384, PostDBWorkers: got.PostDBWorkers, PostDBQueue: 16_384,
		PerfInterval: 10 * time.Second,
		LogConfig:    LogConfig{LogFormat: "auto", LogLevel: "info"},
	}
	got.inForce = nil
	if !reflect.DeepEqual(got, want) {
		t.Errorf("defaults %+v\nwant %+v", got, want)
	}
}

func TestAFlagWinsOverTheEnvironmentAndThatOverTheFile(t *testing.T) {
	path := settings(t, "hold-ttl: 5s\nmax-holds: 5\nworkers: 5\n")
	t.Setenv("NONCEGATE_CONFIG", path)
	t.Setenv("NONCEGATE_HOLD_TTL", "6s")
	t.Setenv("NONCEGATE_MAX_HOLDS", "6")
	o := runArgs(t, "serve", "--hold-ttl=7s")
	if o.code != exitOK {
		t.Fatalf("exit %d: %s", o.code, o.stderr)
	}
	if o.cfg.HoldTTL != 7*time.Second || o.cfg.MaxHolds != 6 || o.cfg.Workers != 5 || o.cfg.MaxBatch != 100 {
		t.Errorf("hold-ttl %v, max-holds %d, workers %d, max-batch %d; want 7s of the flag, 6 of the environment, 5 of the file, 100 by default",
			o.cfg.HoldTTL, o.cfg.MaxHolds, o.cfg.Workers, o.cfg.MaxBatch)
	}
}

func TestTheFileTakesValuesAsTheyAreWritten(t *testing.T) {
	path := settings(t, `
# a comment
backpressure: off
slow-policy: [drop, kick]
write-max-bytes: 2097152
node-id: "007"
`)
	o := runArgs(t, "serve", "--config", path)
	if o.code != exitOK {
		t.Fatalf("exit %d: %s", o.code, o.stderr)
	}
	if c := o.cfg; c.Backpressure != "off" || c.SlowPolicy != "drop,kick" || c.WriteMaxBytes != 2_097_152 || c.NodeID != "007" {
		t.Errorf("backpressure %q, slow-policy %q, write-max-bytes %d, node-id %q", c.Backpressure, c.SlowPolicy, c.WriteMaxBytes, c.NodeID)
	}
	if o := runArgs(t, "serve", "--config", settings(t, "# nothing\n")); o.code != exitOK {
		t.Errorf("an empty file: exit %d: %s", o.code, o.stderr)
	}
}

func TestHelpListsEverySettingWithDefaultAndVariable(t *testing.T) {
	for _, args := range [][]string{{"serve", "--help"}, {"serve", "--workers=0", "-h"}} {
		o := runArgs(t, args...)
		if o.code != exitOK || o.stderr != "" || o.cfg != nil {
			t.Fatalf("%q: exit %d, stderr %q, served %t", args, o.code, o.stderr, o.cfg != nil)
		}
		text := strings.Join(strings.Fields(o.stdout), " ")
		for _, flag := range serveFlags(t) {
			entry := regexp.MustCompile(`--` + flag.Name + `=` + regexp.QuoteMeta(flag.FormatPlaceHolder()) + ` [^$]+ \(\$(NONCEGATE_[A-Z_]+)\)\.`).FindStringSubmatch(text)
			want := "NONCEGATE_" + strings.ToUpper(strings.ReplaceAll(flag.Name, "-", "_"))
			if entry == nil || entry[1] != want {
				t.Errorf("%q: --%s is not listed with its default %q and %s", args, flag.Name, flag.Default, want)
			}
			if strings.HasSuffix(flag.Name, "-bytes") && !regexp.MustCompile(`^\d+$`).MatchString(flag.Default) {
				t.Errorf("--%s: default %q is not a number", flag.Name, flag.Default)
			}
		}
	}
}

// serveFlags are the flags of serve but --help, from the model itself.
func serveFlags(t *testing.T) []*kong.Flag {
	t.Helper()
	all := commandModel(t).Children
	flags := all[slices.IndexFunc(all, func(n *kong.Node) bool { return n.Name == "serve" })].Flags
	if len(flags) < 39 {
		t.Fatalf("serve has %d flags, want all of them", len(flags))
	}
	return flags
}

// No number and no duration of any command may be below zero, and who gives one that
// is learns the rule, also where it looks like a flag.
func TestLongANumberBelowZeroIsToldTheRule(t *testing.T) {
	arguments := map[string][]string{
		"call": {"m"}, "signer show": {"s"}, "engine switch": {"reliable"}, "key create": {"a"}, "key revoke": {"0123456789abcdef"},
	}
	tried := 0
	for _, command := range commandModel(t).Leaves(true) {
		path := strings.TrimPrefix(command.Path(), "gateway ")
		name, _, _ := strings.Cut(path, " <")
		name, _, _ = strings.Cut(name, " [")
		for _, flag := range command.Flags {
			negative := "-3"
			switch {
			case flag.Target.Type() == reflect.TypeFor[time.Duration]():
				negative = "-5m0s"
			case !flag.Target.CanInt():
				continue
			}
			tried++
			for _, form := range [][]string{{"--" + flag.Name, negative}, {"--" + flag.Name + "=" + negative}} {
				args := append(append(strings.Fields(name), arguments[name]...), form...)
				o := runArgs(t, args...)
				names := strings.Contains(o.stderr, "--"+flag.Name+" "+negative+" must ") || strings.HasSuffix(o.stderr, " --"+flag.Name+" "+negative+"\n")
				if o.code != exitUsage || !names || !strings.Contains(o.stderr, " must ") {
					t.Errorf("%q: exit %d, stderr %q", args, o.code, o.stderr)
				}
			}
		}
	}
	if tried < 50 {
		t.Errorf("%d flags were tried", tried)
	}
}

func TestEveryCommandHasHelp(t *testing.T) {
	t.Parallel()
	all, same := runArgs(t, "--help"), runArgs(t, "help")
	if same.code != exitOK || same.stdout != all.stdout || same.stderr != "" || same.cfg != nil {
		t.Errorf("gateway help: exit %d, stdout %q, stderr %q", same.code, same.stdout, same.stderr)
	}
	for _, command := range []string{"serve", "call", "watch", "nodes", "signer show", "signer list", "signer floor", "signer release", "signer consume", "engine switch", "key create", "migrate", "version", "help"} {
		o := runArgs(t, append(strings.Fields(command), "--help")...)
		if o.code != exitOK || !strings.HasPrefix(o.stdout, "Usage: gateway "+command) {
			t.Errorf("%s --help: exit %d, stdout %q", command, o.code, o.stdout)
		}
		if same = runArgs(t, append([]string{"help"}, strings.Fields(command)...)...); same.code != exitOK || same.stdout != o.stdout || same.stderr != "" {
			t.Errorf("help %s: exit %d, stdout %q, stderr %q", command, same.code, same.stdout, same.stderr)
		}
		if group, _, _ := strings.Cut(command, " "); !strings.Contains(all.stdout, "\n  "+group+" ") {
			t.Errorf("gateway --help does not list %s", command)
		}
	}
	group, same := runArgs(t, "key", "--help"), runArgs(t, "help", "key")
	if same.code != exitOK || same.stdout != group.stdout || !strings.Contains(same.stdout, "key create") {
		t.Errorf("gateway help key: exit %d, stdout %q", same.code, same.stdout)
	}
}

func TestSlowActionsAreThoseNamed(t *testing.T) {
	for policy, want := range map[string][3]bool{
		"pause,drop,kick": {true, true, true},
		"drop":            {false, true, false},
		"kick,pause":      {true, false, true},
	} {
		c := &Config{SlowPolicy: policy}
		if got := [3]bool{c.slow("pause"), c.slow("drop"), c.slow("kick")}; got != want {
			t.Errorf("%s: pause, drop, kick = %v, want %v", policy, got, want)
		}
	}
}

func TestIdentityComesFromTheSettingsElseFromTheListener(t *testing.T) {
	host, err := os.Hostname()
	expect.Must(t, err)
	for _, tt := range []struct{ id, url, bound, wantID, wantURL string }{
		{"", "", "127.0.0.1:8080", host + ":8080", "ws://127.0.0.1:8080/ws"},
		{"", "", "0.0.0.0:9000", host + ":9000", "ws://" + host + ":9000/ws"},
		{"", "", "[::]:9000", host + ":9000", "ws://" + host + ":9000/ws"},
		{"", "", "[::1]:9000", host + ":9000", "ws://[::1]:9000/ws"},
		{"n1", "", "10.0.0.7:8080", "n1", "ws://10.0.0.7:8080/ws"},
		{"", "wss://gw/ws", "10.0.0.7:8080", host + ":8080", "wss://gw/ws"},
		{"n1", "wss://gw/ws", "10.0.0.7:8080", "n1", "wss://gw/ws"},
	} {
		bound, err := net.ResolveTCPAddr("tcp", tt.bound)
		expect.Must(t, err)
		id, url, err := (&Config{NodeID: tt.id, AdvertiseURL: tt.url}).Identity(bound)
		if id != tt.wantID || url != tt.wantURL || err != nil {
			t.Errorf("%+v: %q, %q, %v", tt, id, url, err)
		}
	}
}

func TestTheLogIsOfTheChosenFormatAndLevel(t *testing.T) {
	var text, jsonOut bytes.Buffer
	(&LogConfig{LogFormat: "text", LogLevel: "warn"}).Logger(&text).Info("quiet")
	(&LogConfig{LogFormat: "text", LogLevel: "warn"}).Logger(&text).Warn("heard")
	if got := text.String(); strings.Contains(got, "quiet") || !strings.Contains(got, "level=WARN msg=heard") {
		t.Errorf("text log %q", got)
	}
	(&LogConfig{LogFormat: "json", LogLevel: "debug"}).Logger(&jsonOut).Debug("heard")
	var auto bytes.Buffer
	(&LogConfig{LogFormat: "auto", LogLevel: "info"}).Logger(&auto).Info("heard")
	if !json.Valid(auto.Bytes()) {
		t.Errorf("where nobody looks, auto is %q, want JSON", auto.String())
	}
	if !json.Valid(jsonOut.Bytes()) || jsonOut.Len() == 0 {
		t.Errorf("json log %q", jsonOut.String())
	}
}
