package check

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/compose-spec/compose-go/v2/cli"
)

func TestTheComposeFileLoadsAndNamesFilesThatAreThere(t *testing.T) {
	file, err := filepath.Abs("../compose/compose.yaml")
	must(t, err)
	opts, err := cli.NewProjectOptions([]string{file}, cli.WithWorkingDirectory(filepath.Dir(file)), cli.WithEnvFiles(filepath.Join(filepath.Dir(file), "example.env")), cli.WithDotEnv)
	must(t, err)
	p, err := opts.LoadProject(t.Context())
	must(t, err)
	gateways, mounted := 0, map[string]bool{}
	for name, s := range p.Services {
		for _, v := range s.Volumes {
			if v.Type != "bind" {
				continue
			}
			mounted[v.Source] = true
			if _, err := os.Stat(v.Source); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if s.Build != nil {
			gateways++
			if _, err := os.Stat(filepath.Join(s.Build.Context, s.Build.Dockerfile)); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	if gateways != 3 {
		t.Errorf("%d gateways", gateways)
	}
	boards, err := filepath.Glob("../../dashboards/*.json")
	if err != nil || len(boards) == 0 {
		t.Fatalf("no dashboards: %v", err)
	}
	for _, board := range boards {
		if path, err := filepath.Abs(board); err != nil || !mounted[path] {
			t.Errorf("Grafana is not given %s: %v", board, err)
		}
	}
}
