package rights_test

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"noncegate/internal/access/rights"
	"noncegate/nonce"
	"noncegate/test/lab/expect"
)

const example = `
principals:
  relayer-1:
    - rights: [allocate, mark]
      signers: ["eip155:1:*", treasury]
    - rights: [read]
      signers: ["*"]
    - {rights: [mark-any], signers: ["eip155:1:0xAB5801A7D398351B8BE11C439E05C5B3259AEC9B"]}
    - {rights: [admin], signers: ["eip155:1:0xAB5801A7D398351B8BE11C439E05C5B3259AEC9B*"]}
  idle:
  watcher:
    - {rights: [subscribe], signers: ["*"]}
quotas:
  relayer-1: {requestsPerSecond: 2.5, connections: 0}
defaultQuota: {requestsPerSecond: 50, burst: 200, connections: 5, subscriptions: 7, openHolds: 9, newSignersPerMinute: 6}
`

func parse(t testing.TB, text string) *rights.Rights {
	t.Helper()
	r, err := rights.Parse([]byte(text))
	expect.Must(t, err)
	return r
}

func TestARightIsThereOnlyWhereItIsWritten(t *testing.T) {
	r := parse(t, example)
	const address = "eip155:1:0xab5801a7d398351b8be11c439e05c5b3259aec9b"
	for _, c := range []struct {
		principal string
		want      rights.Right
		signer    string
		may       bool
	}{
		{"relayer-1", rights.Allocate, "eip155:1:x", true},
		{"relayer-1", rights.Allocate, "eip155:1:", true},
		{"relayer-1", rights.Allocate, "eip155:1", false},
		{"relayer-1", rights.Allocate, "eip155:10:x", false},
		{"relayer-1", rights.Allocate, "treasury", true},
		{"relayer-1", rights.Allocate, "treasury2", false},
		{"relayer-1", rights.Allocate | rights.Read, "treasury", true},
		{"relayer-1", rights.Allocate | rights.Admin, "treasury", false},
		{"relayer-1", rights.Read, "whatever", true},
		{"relayer-1", rights.Read, "*", true},
		{"relayer-1", rights.Subscribe, "treasury", false},
		{"relayer-1", rights.MarkAny, address, true},
		{"relayer-1", rights.Admin, address, true},
		{"relayer-1", rights.Mark, address, true},
		{"idle", rights.Read, "treasury", false},
		{"watcher", rights.Subscribe, "*", true},
		{"watcher", rights.Read, "treasury", false},
		{"nobody", rights.Read, "treasury", false},
		{"", rights.Read, "treasury", false},
	} {
		if got := r.May(c.principal, c.want, c.signer); got != c.may {
			t.Errorf("%s, %v on %s: got %v, want %v", c.principal, c.want, c.signer, got, c.may)
		}
	}
	if !r.Knows("idle") || r.Knows("nobody") {
		t.Error("idle is in the file and nobody is not")
	}
}

func TestTheRightChainIsForWholeChains(t *testing.T) {
	r := parse(t, `
principals:
  one: [{rights: [chain, mark], signers: ["eip155:1:*"]}]
  every: [{rights: [chain], signers: ["eip155:*"]}]
  all: [{rights: [chain], signers: ["*"]}]
  none: [{rights: [allocate, mark, read], signers: ["*"]}]
`)
	every := [3]bool{true, true, true}
	for principal, want := range map[string][3]bool{"one": {true, false, false}, "every": every, "all": every, "none": {}} {
		for i, chain := range []string{"eip155:1", "eip155:10", "eip155:137"} {
			if got := r.May(principal, rights.Chain, rights.ChainOf(chain)); got != want[i] {
				t.Errorf("%s on %s: %v, want %v", principal, chain, got, want[i])
			}
		}
	}
}

func TestPrincipalsWithoutLimitsAreWarnedOf(t *testing.T) {
	for quotas, want := range map[string]string{
		"":                               "principals=\"[a b]\"",
		"defaultQuota: {connections: 2}": "principals=\"[a b]\"",
		"quotas: {a: {requestsPerSecond: 5, connections: 2}}":  "principals=[b]",
		"defaultQuota: {requestsPerSecond: 5, connections: 2}": "",
	} {
		path, log := filepath.Join(t.TempDir(), "rights.yaml"), new(expect.Buffer)
		expect.Must(t, os.WriteFile(path, []byte("principals: {b: [], a: []}\n"+quotas), 0o600))
		f, err := rights.Open(t.Context(), path, rights.Config{Log: slog.New(slog.NewTextHandler(log, nil))})
		expect.Must(t, err)
		f.Stop()
		if said := log.String(); strings.Contains(said, "level=WARN") != (want != "") || !strings.Contains(said, want) {
			t.Errorf("%q: the log is %s, want %q in a warning", quotas, said, want)
		}
	}
}

func TestQuotasAreTheDefaultButForWhatIsGiven(t *testing.T) {
	r := parse(t, example)
	for principal, want := range map[string]rights.Quota{
		"relayer-1": {RequestsPerSecond: 2.5, Burst: 3, Subscriptions: 7, OpenHolds: 9, NewSigners: 6},
		"idle":      {RequestsPerSecond: 50, Burst: 200, Connections: 5, Subscriptions: 7, OpenHolds: 9, NewSigners: 6},
	} {
		if got := r.Quota(principal); got != want {
			t.Errorf("%s: got %+v, want %+v", principal, got, want)
		}
	}
	if got := parse(t, "principals: {a: []}").Quota("a"); got != (rights.Quota{}) {
		t.Errorf("without any quota: got %+v", got)
	}
}

func TestAnErrorIsASentenceWithItsLine(t *testing.T) {
	entry := func(text string) string { return "principals:\n  a:\n    - " + text + "\n" }
	quota := func(text string) string { return "principals: {a: []}\n" + text + "\n" }
	for _, c := range []struct{ name, text, want string }{
		{"empty", "", "principals is missing"},
		{"comment only", "# nothing\n", "principals is missing"},
		{"nobody", "principals: {}\n", "principals is missing or empty: nobody could be let in"},
		{"no YAML", "principals: [", "line 1: did not find expected node content"},
		{"a tab", "principals:\n\ta: []\n", "line 2: found character that cannot start any token"},
		{"another top", quota(`principal: {}`), "line 2: field principal not found"},
		{"another key of an entry", entry("right: [read]\n      signers: [x]"), "line 3: field right not found"},
		{"another quota", quota(`defaultQuota: {rps: 1}`), "line 2: field rps not found"},
		{"twice", "principals:\n  a: []\n  a: []\n", `line 3: mapping key "a" already defined at line 2`},
		{"two documents", "principals: {a: []}\n---\nprincipals: {b: []}\n", "more than one YAML document"},
		{"no list", "principals:\n  a: read\n", "line 2: cannot unmarshal !!str `read`"},
		{"unknown right", entry(`{rights: [write], signers: [x]}`),
			`line 3: there is no right "write"; the rights are allocate, mark, mark-any, read, subscribe, admin, repair, chain`},
		{"capital right", entry(`{rights: [Read], signers: [x]}`), `there is no right "Read"`},
		{"null right", entry(`{rights: [~], signers: [x]}`), `line 2: entry 1 of principal "a" needs rights and signers`},
		{"no rights", entry(`{signers: [x]}`), `line 2: entry 1 of principal "a" needs rights and signers`},
		{"no signers", entry(`{rights: [read], signers: []}`), `entry 1 of principal "a" needs rights and signers`},
		{"star in front", entry("rights: [read]\n      signers:\n        - \"*:1\""),
			`line 5: signer pattern "*:1" must have its * at the end only`},
		{"two stars", entry(`{rights: [read], signers: ["a**"]}`), "must have its * at the end only"},
		{"empty signer", entry(`{rights: [read], signers: [""]}`), `signer pattern "" must not be empty`},
		{"space", entry(`{rights: [read], signers: ["a b"]}`), "must be visible ASCII characters only"},
		{"long", entry("{rights: [read], signers: [" + strings.Repeat("x", 129) + "]}"), "must be at most 128 characters"},
		{"no signer begins so", entry(`{rights: [read], signers: ["eip155:01:*"]}`), `signer pattern "eip155:01:*" must have a chain id`},
		{"a bare address", entry(`{rights: [read], signers: ["0xab5801a7d398351b8be11c439e05c5b3259aec9b"]}`),
			"did you mean eip155:1:0xab5801a7d398351b8be11c439e05c5b3259aec9b?"},
		{"a mistyped account", entry(`{rights: [read], signers: ["eip155:1:0xAb5801a7D398351b8bE11C439e05C5B3259aeC9b"]}`),
			"not its checksum (EIP-55)"},
		{"half a chain id", entry(`{rights: [read], signers: ["eip155:1*"]}`),
			`line 3: signer pattern "eip155:1*" ends inside a chain id, so that signers of other chains fit it too; ` +
				"for chain 1 alone it is eip155:1:*"},
		{"part of a chain", entry(`{rights: [chain], signers: ["eip155:1:0xab*"]}`),
			`line 3: signer pattern "eip155:1:0xab*" cannot have the right chain, which is for whole chains (eip155:1:*`},
		{"no chain", entry(`{rights: [allocate, chain], signers: [treasury]}`), `signer pattern "treasury" cannot have the right chain`},
		{"half an address", entry(`{rights: [read], signers: ["eip155:1:0xAB*"]}`), "must have the beginning of an address in lower case"},
		{"a number as signer", entry(`{rights: [read], signers: [1]}`),
			"line 3: a name is needed here, in quotes where it looks like something else"},
		{"a number as principal", "principals:\n  1: []\n", "line 2: a name is needed here"},
		{"principal with a space", "principals:\n  a b: []\n", `line 2: principal "a b" must be 1 to 128 visible ASCII characters, no spaces`},
		{"quota of nobody", quota("quotas:\n  b: {connections: 1}"), `line 3: there is a quota for "b", who is not among the principals`},
		{"negative quota", quota("quotas:\n  a: {connections: -1}"), `line 3: "-1" must be a whole number, 0 (no limit) to 2147483647`},
		{"negative rate", quota(`defaultQuota: {requestsPerSecond: -0.5}`), "defaultQuota: requestsPerSecond -0.5 must be 0 (no limit) to 1e9"},
		{"endless rate", quota(`defaultQuota: {requestsPerSecond: .inf}`), "requestsPerSecond +Inf must be"},
		{"no rate", quota(`defaultQuota: {requestsPerSecond: .nan}`), "requestsPerSecond NaN must be"},
		{"half a connection", quota(`defaultQuota: {connections: 1.5}`), `line 2: "1.5" must be a whole number`},
		{"burst alone", quota(`defaultQuota: {burst: 5}`), "defaultQuota: burst needs requestsPerSecond"},
	} {
		r, err := rights.Parse([]byte(c.text))
		if err == nil {
			t.Errorf("%s: it was taken: %+v", c.name, r)
			continue
		}
		if !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "rights.") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: got %q, want it to have %q", c.name, err, c.want)
		}
	}
}

// TestALookupFindsWhatASearchOfAllPatternsFinds compares the search with the plain
// rule, on few letters so that patterns are often prefixes of each other.
func TestALookupFindsWhatASearchOfAllPatternsFinds(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	word := func() string {
		b := make([]byte, rnd.IntN(7))
		for i := range b {
			b[i] = "ab~!"[rnd.IntN(4)]
		}
		return string(b)
	}
	for range 300 {
		var file strings.Builder
		type pattern struct {
			text     string
			isPrefix bool
			right    int
		}
		var all []pattern
		names := []string{"allocate", "mark", "mark-any", "read", "subscribe", "admin", "repair"}
		file.WriteString("principals:\n  p:\n")
		for range 1 + rnd.IntN(20) {
			p := pattern{word(), rnd.IntN(2) == 0, rnd.IntN(len(names))}
			if p.text == "" {
				p.isPrefix = true
			}
			all = append(all, p)
			star := ""
			if p.isPrefix {
				star = "*"
			}
			fmt.Fprintf(&file, "    - {rights: [%s], signers: ['%s%s']}\n", names[p.right], p.text, star)
		}
		r := parse(t, file.String())
		for range 50 {
			signer := word() + word()
			for right := range names {
				want := false
				for _, p := range all {
					want = want || p.right == right && (p.text == signer || p.isPrefix && strings.HasPrefix(signer, p.text))
				}
				if got := r.May("p", 1<<right, signer); got != want {
					t.Fatalf("%s on %q: got %v, want %v by\n%s", names[right], signer, got, want, file.String())
				}
			}
		}
	}
}

func TestRightsAreNamedAsInTheFile(t *testing.T) {
	for right, want := range map[rights.Right]string{
		rights.Allocate: "allocate", rights.MarkAny: "mark-any", rights.Admin: "admin", rights.Repair: "repair",
		rights.Mark | rights.Read: "mark, read", 0: "",
	} {
		if got := right.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestALookupTakesNoAllocation(t *testing.T) {
	r := parse(t, example)
	const signer = "eip155:1:0xab5801a7d398351b8be11c439e05c5b3259aec9b"
	if n := testing.AllocsPerRun(100, func() { r.May("relayer-1", rights.Allocate, signer) }); n != 0 {
		t.Errorf("a lookup takes %v allocations", n)
	}
}

// FuzzParse looks for files that panic, or whose errors are not one line.
func FuzzParse(f *testing.F) {
	f.Add([]byte(example))
	f.Add([]byte("principals: {a: [{rights: [read], signers: ['*']}]}\nquotas: {a: {burst: 1}}"))
	f.Add([]byte("principals: &a {x: *a}"))
	f.Add([]byte("principals: {<<: {a: []}, ? [b] : []}"))
	f.Add([]byte("a: &a [x,x]\nprincipals: {a: *a}"))
	f.Add([]byte{0xff, 0xfe, 0})
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := rights.Parse(text)
		if (r == nil) == (err == nil) {
			t.Fatalf("got %v and %v", r, err)
		}
		if err != nil {
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("the error has more than one line: %q", err)
			}
			return
		}
		if r.May("nobody that is in a file ", rights.Read, "s") {
			t.Error("somebody who cannot be in a file has a right")
		}
	})
}

// FuzzParsePattern looks for patterns that panic, and that do not fit the signers they
// are written for.
func FuzzParsePattern(f *testing.F) {
	f.Add("eip155:1:0xAB5801A7D398351B8BE11C439E05C5B3259AEC9B", "")
	f.Add("eip155:1:0xAB5801A7D398351B8BE11C439E05C5B3259AEC9B*", ":1")
	f.Add("eip155:*", "1:0xAB5801A7D398351B8BE11C439E05C5B3259AEC9B")
	f.Add("0x*", "AB5801A7D398351B8BE11C439E05C5B3259AEC9B")
	f.Add("0X*", "AB5801A7D398351B8BE11C439E05C5B3259AEC9B")
	f.Add("*", "x")
	f.Fuzz(func(t *testing.T, pattern, rest string) {
		text, isPrefix, err := rights.ParsePattern(pattern)
		if err != nil {
			return
		}
		spelled := strings.TrimSuffix(pattern, "*")
		if isPrefix {
			spelled += rest
		}
		signer, err := nonce.ParseSigner(spelled)
		if err != nil {
			return
		}
		if !isPrefix && signer != text {
			t.Errorf("pattern %q is %q, and the signer %q", pattern, text, signer)
		}
		if isPrefix && !strings.HasPrefix(signer, text) && !addressGrew(pattern, rest) {
			t.Errorf("pattern %q is %q, and the signer %q does not begin with it", pattern, text, signer)
		}
	})
}

// addressGrew reports whether what follows a pattern makes something else of the address
// at its end: with more digits or letters behind, it is none.
func addressGrew(pattern, rest string) bool {
	p := strings.TrimSuffix(pattern, "*")
	return len(p) >= 42 && rest != "" && strings.ContainsAny(rest[:1], "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
}
