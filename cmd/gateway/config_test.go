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

	"noncegate/internal/access/jwt"
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
		TLSConfig: TLSConfig{TLSClientAuth: "request", Pprof: "off"},
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

func TestAWrongSettingOnTheCommandLineIsOneSentence(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"--hold-ttl=10":            `--hold-ttl: "10" is not a duration such as 10s or 1m30s`,
		"--hold-ttl":               `--hold-ttl: needs a value`,
		"--hold-ttl --mode=basic":  `--hold-ttl: needs a value`,
		"--workers=two":            `--workers: "two" is not a whole number`,
		"--max-message-bytes=64Ki": `--max-message-bytes: "64Ki" is not a whole number`,
		"--hold-tll=5s":            `unknown flag --hold-tll, did you mean "--hold-ttl"?`,

		"--listen=8080":                           `--listen "8080" must be HOST:PORT with a number as the port`,
		"--listen=localhost:http":                 `--listen "localhost:http" must be HOST:PORT with a number as the port`,
		"--admin-listen=:65536":                   `--admin-listen ":65536" must be HOST:PORT with a number as the port`,
		"--admin-listen=127.0.0.1:8080":           `--admin-listen "127.0.0.1:8080" must differ from --listen`,
		"--max-connections=0":                     `--max-connections 0 must be at least 1`,
		"--max-message-bytes=1023":                `--max-message-bytes 1023 must be at least 1024`,
		"--max-batch=0":                           `--max-batch 0 must be at least 1`,
		"--max-batch=257":                         `--max-batch 257 must not be above --max-inflight 256`,
		"--max-inflight=0":                        `--max-inflight 0 must be at least 1`,
		"--max-inflight-total=255":                `--max-inflight 256 must not be above --max-inflight-total 255`,
		"--ping-interval=999ms":                   `--ping-interval 999ms must be at least 1s`,
		"--drain-timeout=-1s":                     `--drain-timeout -1s must be at least 1s`,
		"--store=mysql://db":                      `--store must be sqlite:FILE or a URL that starts with postgres:// or postgresql://`,
		"--store=postgres://u:secret%zz@db":       `--store must be sqlite:FILE or a URL that starts with postgres:// or postgresql://`,
		"--store=sqlite:":                         `--store sqlite: needs the name of a file, such as sqlite:noncegate.db`,
		"--store-file=/nowhere/url":               `--store-file cannot be read: open /nowhere/url: no such file or directory`,
		"--store-file=config_test.go":             `--store-file config_test.go must hold a URL that starts with postgres:// or postgresql://, and nothing else`,
		"--store-file=x --store=postgres://u@h/d": `--store-file names the store, and so does --store: take one of them away`,
		"--redis=localhost:6379":                  `--redis must be a URL that starts with redis://, rediss://, unix://, redis+cluster:// or rediss+cluster://`,
		"--redis=redis://:secret@cache?retry=1":   `--redis takes no parameters but db, client_name, dial_timeout, read_timeout, write_timeout, pool_size, skip_verify`,
		"--store-wait=-1s":                        `--store-wait -1s must not be negative`,
		"--request-retention=-1h":                 `--request-retention -1h0m0s must be 0 or at least 1m0s`,
		"--request-retention=59s":                 `--request-retention 59s must be 0 or at least 1m0s`,
		"--consumed-retention=59s":                `--consumed-retention 59s must be 0 or at least 1m0s`,
		"--consumed-retention=-1h":                `--consumed-retention -1h0m0s must be 0 or at least 1m0s`,
		"--node-id=a/é":                           `--node-id must be 1 to 128 visible ASCII characters`,
		"--node-id=" + strings.Repeat("n", 129):   `--node-id must be 1 to 128 visible ASCII characters`,
		"--tls-key=k":                             `--tls-key needs --tls-cert beside it`,
		"--tls-cert=c":                            `--tls-cert needs --tls-key beside it`,
		"--tls-client-ca=a":                       `--tls-client-ca needs --tls-cert: only TLS shows certificates`,
		"--tls-client-auth=require":               `--tls-client-auth require needs --tls-client-ca, which says whose certificates`,
		"--tls-client-auth=maybe":                 `--tls-client-auth "maybe" must be request or require`,
		"--insecure-listen=yes":                   `--insecure-listen "yes" must be some of no-tls,no-auth`,
		"--admin-key=short":                       `--admin-key must be 16 to 512 visible ASCII characters`,
		"--pprof=yes":                             `--pprof "yes" must be on or off`,
		"--advertise-url=gw:8080":                 `--advertise-url "gw:8080" must be a URL that starts with ws://, wss://, http:// or https://`,
		"--advertise-url=ws:///ws":                `--advertise-url "ws:///ws" must be a URL that starts with ws://, wss://, http:// or https://`,
		"--chain=ws://a":                          `--chain must be CHAIN=URL,URL, such as eip155:1=ws://127.0.0.1:8546`,
		"--chain=eip155:01=ws://a":                `--chain "eip155:01": must be eip155: and a chain id without leading zeros`,
		"--chain=eip155:1=ws://a,b":               `--chain number 2 of the nodes of eip155:1 must be a URL that begins with ws://, wss://, http:// or https://`,
		"--chain=eip155:1=ws://a,eip155:1=ws://b": `--chain eip155:1 is given twice; name all its nodes once, with commas between`,
		"--chain-finality=soon":                   `--chain-finality "soon" must be finalized or a number of blocks, 1 to 10000`,
		"--chain-finality=eip155:x=3":             `--chain-finality "eip155:x": must be eip155: and a chain id without leading zeros`,
		"--chain-window=0":                        `--chain-window "0" must be a number, at least 1`,
		"--chain-window=[=4":                      `--chain-window the pattern "[" cannot be read`,
		"--chain-window=eip155:1*=4":              `--chain-window the pattern "eip155:1*" ends inside a chain id, so that signers of other chains fit it too; for chain 1 alone it is eip155:1:*`,
		"--unknown-ttl=999ms":                     `--unknown-ttl 999ms must be 0 or at least 1s`,
		"--unknown-ttl=-1s":                       `--unknown-ttl -1s must be 0 or at least 1s`,
		"--chain-window=eip155:1:0x52*=none":      `--chain-window "none" must be a number, at least 1`,
		"--chain-finality=eip155:10=0":            `--chain-finality "0" must be finalized or a number of blocks, 1 to 10000`,
		"--chain-gap-after=999ms":                 `--chain-gap-after 999ms must be at least 1s`,
		"--chain-poll=9ms":                        `--chain-poll 9ms must be 0 or at least 10ms`,
		"--chain-timeout=99ms":                    `--chain-timeout 99ms must be at least 100ms`,
		"--chain-wait=9ms":                        `--chain-wait 9ms must be at least 10ms`,
		"--chain=eip155:1=":                       `--chain number 1 of the nodes of eip155:1 must be a URL that begins with ws://, wss://, http:// or https://`,
		"--chain=eip155:1=http://u:secret%zz@a":   `--chain number 1 of the nodes of eip155:1 must be a URL that begins with ws://, wss://, http:// or https://`,
		"--chain-lag=0":                           `--chain-lag 0 must be at least 1`,
		"--chain-lag=64":                          `--chain-lag 64 must be at most 63`,
		"--chain-poll=61m":                        `--chain-poll 1h1m0s must be at most 1h0m0s`,
		"--chain-timeout=61s":                     `--chain-timeout 1m1s must be at most 1m0s`,
		"--chain-finality=10001":                  `--chain-finality "10001" must be finalized or a number of blocks, 1 to 10000`,
		"--chain=eip155:1=ws://a" + strings.Repeat(",ws://a", 16): `--chain eip155:1 has 17 nodes; at most 16 are asked`,
		"--eth-take=yes":                        `--eth-take "yes" must be on or off`,
		"--chain-delegated-window=0":            `--chain-delegated-window "0" must be a number, at least 1`,
		"--chain-delegated-window=eip155:x=4":   `--chain-delegated-window "eip155:x": must be eip155: and a chain id without leading zeros`,
		"--chain-delegated-window=eip155:1=all": `--chain-delegated-window "all" must be a number, at least 1`,
		"--eth-replace=none":                    `--eth-replace "none" must be same, any, or PRINCIPAL=same or PRINCIPAL=any`,
		"--eth-replace=alice=all":               `--eth-replace "alice=all" must be same, any, or PRINCIPAL=same or PRINCIPAL=any`,
		"--eth-replace==any":                    `--eth-replace "=any" must be same, any, or PRINCIPAL=same or PRINCIPAL=any`,
		"--new-signers=maybe":                   `--new-signers "maybe" must be allow or refuse`,
		"--mode=fast":                           `--mode "fast" must be worker-queue or basic`,
		"--workers=0":                           `--workers 0 must be at least 1`,
		"--worker-queue-capacity=0":             `--worker-queue-capacity 0 must be at least 1`,
		"--worker-reject-policy=drop":           `--worker-reject-policy "drop" must be fail-fast or caller-runs`,
		"--lease-ttl=999ms":                     `--lease-ttl 999ms must be at least 1s`,
		"--hold-ttl=999ms":                      `--hold-ttl 999ms must be at least 1s`,
		"--hold-ttl=11m":                        `--hold-ttl 11m0s must not be above --max-hold 10m0s`,
		"--origins=https://app.example/":        `--origins "https://app.example/" must be SCHEME://HOST or SCHEME://HOST:PORT in lower case, such as https://app.example`,
		"--origins=https://a,https://*.example": `--origins "https://*.example" must be SCHEME://HOST or SCHEME://HOST:PORT in lower case, such as https://app.example`,
		"--origins=https://App.example":         `--origins "https://App.example" must be SCHEME://HOST or SCHEME://HOST:PORT in lower case, such as https://app.example`,
		"--origins=null":                        `--origins "null" must be SCHEME://HOST or SCHEME://HOST:PORT in lower case, such as https://app.example`,
		"--missing-origin=deny":                 `--missing-origin "deny" must be allow or refuse`,
		"--audit=some":                          `--audit "some" must be off or refusals or changes or all`,
		"--jwt-keys=keys.json":                  `--jwt-keys needs --rights beside it, which says what the principals of tokens may do`,
		"--jwt-issuer=me":                       `--jwt-issuer needs --jwt-keys beside it`,
		"--jwt-audience=me":                     `--jwt-audience needs --jwt-keys beside it`,
		"--jwt-prefix=me:":                      `--jwt-prefix needs --jwt-keys beside it`,
		"--rights=r --jwt-keys=k":               `--jwt-issuer must be set with --jwt-keys`,
		"--rights=r --jwt-keys=k --jwt-issuer=i --jwt-audience=a --jwt-methods=HS256": `--jwt-methods "HS256" must be some of ` + strings.Join(jwt.Methods, ","),
		"--rights=r --jwt-keys=k --jwt-issuer=i --jwt-audience=a --jwt-leeway=11m":    `--jwt-leeway 11m0s must be at most 10m0s`,
		"--rights=r --jwt-keys=k --jwt-issuer=i --jwt-audience=a --jwt-claim=":        `--jwt-claim must be set with --jwt-keys`,
		"--tls-client-ca=a --tls-cert=c --tls-key=k":                                  `--tls-client-ca means nothing without --rights, as nobody needs a certificate: --tls-client-auth=require refuses who has none`,
		"--insecure-listen=no-auth --rights=r":                                        `--insecure-listen does without authentication (no-auth), and --rights is given: take one of them away`,
		"--insecure-listen=no-tls,no-auth --tls-cert=c --tls-key=k":                   `--insecure-listen does without TLS (no-tls), and --tls-cert is given: take one of them away`,
		"--signer-rate=-1":               `--signer-rate -1 must not be negative`,
		"--address-connections=-1":       `--address-connections -1 must not be negative`,
		"--address-rate=-1":              `--address-rate -1 must not be negative`,
		"--max-unauthenticated=7":        `--max-unauthenticated 7 must be at least 8`,
		"--max-header-bytes=4095":        `--max-header-bytes 4095 must be at least 4096`,
		"--max-header-bytes=1048577":     `--max-header-bytes 1048577 must be at most 1048576`,
		"--first-message-timeout=99ms":   `--first-message-timeout 99ms must be 0 or at least 100ms`,
		"--message-timeout=99ms":         `--message-timeout 99ms must be 0 or at least 100ms`,
		"--idle-timeout=-1s":             `--idle-timeout -1s must be 0 or at least 100ms`,
		"--max-signers=0":                `--max-signers 0 must be at least 1`,
		"--max-signer-bytes=1048575":     `--max-signer-bytes 1048575 must be at least 1048576`,
		"--shards=1025":                  `--shards 1025 must be 0 to 1024`,
		"--max-holds=0":                  `--max-holds 0 must be 1 to 4096: all of a signer is one row, which is written whole, and no chain takes as many pending transactions of one account`,
		"--max-holds=4097":               `--max-holds 4097 must be 1 to 4096: all of a signer is one row, which is written whole, and no chain takes as many pending transactions of one account`,
		"--sweep-interval=9ms":           `--sweep-interval 9ms must be at least 10ms`,
		"--ship-sla=9ms":                 `--ship-sla 9ms must be at least 10ms`,
		"--ship-sla=45s":                 `--ship-sla 45s must be below --engine-grant 45s`,
		"--ship-interval=0s":             `--ship-interval 0s must be at least 1ms`,
		"--ship-interval=2s":             `--ship-interval 2s must not be above --ship-sla 1s`,
		"--redis-lost-after=1s":          `--engine-timeout 1s must be below --redis-lost-after 1s`,
		"--engine-grant=999ms":           `--engine-grant 999ms must be at least 1s`,
		"--engine-grant=11m":             `--engine-grant 11m0s must be at most 10m0s`,
		"--engine-timeout=9ms":           `--engine-timeout 9ms must be at least 10ms`,
		"--engine-timeout=45s":           `--engine-timeout 45s must be below --engine-grant 45s`,
		"--node-secret=short":            `--node-secret must be 16 to 512 visible ASCII characters`,
		"--forward=maybe":                `--forward "maybe" must be on or off`,
		"--forward-queue=0":              `--forward-queue 0 must be at least 1`,
		"--forward-timeout=21s":          `--forward-timeout 21s must be at most 20s`,
		"--forward-timeout=99ms":         `--forward-timeout 99ms must be at least 100ms`,
		"--write-low-bytes=-1":           `--write-low-bytes -1 must not be negative`,
		"--write-low-bytes=65536":        `--write-low-bytes 65536 must be below --write-high-bytes 65536`,
		"--write-high-bytes=1048576":     `--write-high-bytes 1048576 must be below --write-max-bytes 1048576`,
		"--slow-after=0s":                `--slow-after 0s must be at least 1ms`,
		"--slow-policy=pause,ban":        `--slow-policy "pause,ban" must be some of pause,drop,kick; for none of them there is --backpressure=off`,
		"--slow-policy=":                 `--slow-policy "" must be some of pause,drop,kick; for none of them there is --backpressure=off`,
		"--backpressure=true":            `--backpressure "true" must be on or off`,
		"--write-timeout=0s":             `--write-timeout 0s must be at least 1ms`,
		"--encode-workers=0":             `--encode-workers 0 must be at least 1`,
		"--encode-queue=255":             `--max-inflight-total 16384 must not be above --encode-queue 255`,
		"--postdb-workers=0":             `--postdb-workers 0 must be at least 1`,
		"--postdb-queue=0":               `--postdb-queue 0 must be at least 1`,
		"--perf-interval=0s":             `--perf-interval 0s must be at least 100ms`,
		"--store=sqlite::memory:":        `--store sqlite::memory: is no file: nonces in memory would be handed out twice after a restart; name a file, such as sqlite:noncegate.db`,
		"--log-format=xml":               `--log-format "xml" must be auto or text or json`,
		"--log-level=trace":              `--log-level "trace" must be debug or info or warn or error`,
		"migrate --store=mysql://db":     `--store must be sqlite:FILE or a URL that starts with postgres:// or postgresql://`,
		"--config=/nowhere/gateway.yaml": `--config /nowhere/gateway.yaml: no such file or directory`,
	} {
		words := strings.Fields(args)
		if strings.HasPrefix(args, "--") {
			words = append([]string{"serve"}, words...)
		}
		o := runArgs(t, words...)
		if got := o.stderr; o.code != exitUsage || got != "gateway: "+want+"\n" || o.stdout != "" {
			t.Errorf("%s: exit %d, stdout %q\n got %swant gateway: %s", args, o.code, o.stdout, got, want)
		}
		if o.cfg != nil {
			t.Errorf("%s: served", args)
		}
	}
}

func TestAWrongSettingOfTheEnvironmentNamesItsVariable(t *testing.T) {
	for env, want := range map[string]string{
		"NONCEGATE_HOLD_TTL=soon":       `--hold-ttl: "soon" is not a duration such as 10s or 1m30s (from envar NONCEGATE_HOLD_TTL="soon")`,
		"NONCEGATE_LEASE_TTL=1ms":       `--lease-ttl 1ms must be at least 1s (from NONCEGATE_LEASE_TTL)`,
		"NONCEGATE_STORE=postgres://:x": `--store must be sqlite:FILE or a URL that starts with postgres:// or postgresql:// (from NONCEGATE_STORE)`,
	} {
		t.Run(env, func(t *testing.T) {
			name, value, _ := strings.Cut(env, "=")
			t.Setenv(name, value)
			if o := runArgs(t, "serve"); o.code != exitUsage || o.stderr != "gateway: "+want+"\n" {
				t.Errorf("exit %d\n got %swant gateway: %s", o.code, o.stderr, want)
			}
		})
	}
}

func TestAWrongFileIsOneSentenceWithItsLine(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"hold-ttl: 5s\nhold-tll: 5s\n":         `--config FILE: line 2: "hold-tll" is not a setting`,
		"config: other.yaml\n":                 `--config FILE: line 1: "config" is not a setting`,
		"holdTtl: 5s\n":                        `--config FILE: line 1: "holdTtl" is not a setting`,
		"url: ws://gw\n":                       `--config FILE: line 1: "url" is not a setting`,
		"\nhold-ttl: 10\n":                     `--hold-ttl: "10" is not a duration such as 10s or 1m30s (from FILE, line 2)`,
		"workers: 2.5\n":                       `--workers: "2.5" is not a whole number (from FILE, line 1)`,
		"max-batch: 5\nworkers: 0\n":           `--workers 0 must be at least 1 (from FILE, line 2)`,
		"hold-ttl:\n":                          `--config FILE: line 1: hold-ttl needs a value or a list of values`,
		"hold-ttl: {seconds: 5}\n":             `--config FILE: line 1: hold-ttl needs a value or a list of values`,
		"slow-policy: [[drop]]\n":              `--config FILE: line 1: slow-policy needs a value or a list of values`,
		"workers: 2\nworkers: 3\n":             `--config FILE: line 2: workers is set already in line 1`,
		"- workers\n":                          `--config FILE: line 1: must be lines of SETTING: VALUE`,
		"workers: 2\n---\nworkers: 3\n":        `--config FILE: must hold one YAML document`,
		"workers: 2\n  max-batch: 3\n":         `--config FILE: line 2: mapping values are not allowed in this context`,
		"write-low-bytes: 9\nworkers: [1, 2]":  `--workers: "1,2" is not a whole number (from FILE, line 2)`,
		"hold-ttl: 1h\n# a note\nmax-hold: 5m": `--hold-ttl 1h0m0s must not be above --max-hold 5m0s (from FILE, line 1)`,
	} {
		path := settings(t, text)
		o := runArgs(t, "serve", "--config="+path)
		want = "gateway: " + strings.ReplaceAll(want, "FILE", path) + "\n"
		if o.code != exitUsage || o.stderr != want {
			t.Errorf("%q: exit %d\n got %swant %s", text, o.code, o.stderr, want)
		}
	}
}

func TestTheCommandLineMendsAWrongFile(t *testing.T) {
	path := settings(t, "workers: none\nlease-ttl: 1ms\n")
	if o := runArgs(t, "serve", "--config", path, "--workers=1", "--lease-ttl=2s"); o.code != exitOK || o.cfg.Workers != 1 {
		t.Errorf("exit %d: %s", o.code, o.stderr)
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
	parser, err := kong.New(new(commands), kong.Vars{
		"workers": defaultWorkers, "encode_workers": defaultEncodeWorkers, "postdb_workers": defaultPostDBWorkers,
	})
	if err != nil {
		t.Fatal(err)
	}
	flags := parser.Model.Children[slices.IndexFunc(parser.Model.Children, func(n *kong.Node) bool { return n.Name == "serve" })].Flags
	if len(flags) < 39 {
		t.Fatalf("serve has %d flags, want all of them", len(flags))
	}
	return flags
}

// No number and no duration of any command may be below zero, and who gives one that
// is learns the rule, also where it looks like a flag.
func TestLongANumberBelowZeroIsToldTheRule(t *testing.T) {
	parser, err := kong.New(new(commands), kong.Vars{
		"workers": defaultWorkers, "encode_workers": defaultEncodeWorkers, "postdb_workers": defaultPostDBWorkers, "version": "",
	})
	if err != nil {
		t.Fatal(err)
	}
	arguments := map[string][]string{
		"call": {"m"}, "signer show": {"s"}, "engine switch": {"reliable"}, "key create": {"a"}, "key revoke": {"0123456789abcdef"},
	}
	tried := 0
	for _, command := range parser.Model.Leaves(true) {
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
		pause, drop, kick := (&Config{SlowPolicy: policy}).SlowActions()
		if got := [3]bool{pause, drop, kick}; got != want {
			t.Errorf("%s: pause, drop, kick = %v, want %v", policy, got, want)
		}
	}
}

func TestIdentityComesFromTheSettingsElseFromTheListener(t *testing.T) {
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
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
		if err != nil {
			t.Fatal(err)
		}
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
