package dashboards

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"noncegate/dashboards/internal/boards"
)

// datasource is the variable that every panel and query reads from.
const datasource = "${datasource}"

// lettersPerColumn is about what Grafana shows of a title on a wide screen, for
// each of the 24 columns of its panel.
const lettersPerColumn = 9

type source struct{ Type, UID string }

// dashboard is the part of Grafana's classic model that is looked at.
type dashboard struct {
	UID, Title string
	Templating struct {
		List []struct {
			Name, Type, Definition string
		}
	}
	Panels []panel
}

type panel struct {
	ID                       int
	Type, Title, Description string
	Collapsed                bool    // of a row
	Panels                   []panel // of a row that is collapsed
	GridPos                  struct{ W, H, X, Y int }
	Datasource               source
	FieldConfig              struct{ Defaults struct{ Unit string } }
	Targets                  []struct {
		RefID, Expr string
		Datasource  source
	}
}

// imported are the files as Grafana reads them.
func imported(t *testing.T) map[string]dashboard {
	t.Helper()
	all := make(map[string]dashboard)
	for _, b := range boards.All() {
		var d dashboard
		text, err := os.ReadFile(b.File)
		if err == nil {
			err = json.Unmarshal(text, &d)
		}
		if err != nil {
			t.Fatal(err)
		}
		all[b.File] = d
	}
	return all
}

// all are the rows and the panels, also those within rows.
func (d dashboard) all() (all []panel) {
	for _, p := range d.Panels {
		all = append(append(all, p), p.Panels...)
	}
	return all
}

func TestTheFilesAreThoseThatAreGenerated(t *testing.T) {
	for _, b := range boards.All() {
		want, err := b.JSON()
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(b.File)
		if err != nil || string(got) != string(want) {
			t.Errorf("%s is not current (%v): run go generate ./dashboards", b.File, err)
		}
	}
}

func TestEachPanelSaysWhatItShows(t *testing.T) {
	uids := make(map[string]bool)
	for file, d := range imported(t) {
		if d.UID == "" || uids[d.UID] || d.Title == "" || len(d.Panels) == 0 {
			t.Errorf("%s: uid %q, title %q, %d panels", file, d.UID, d.Title, len(d.Panels))
		}
		uids[d.UID] = true
		ids := make(map[int]string)
		for _, p := range d.all() {
			if other, twice := ids[p.ID]; twice || p.ID == 0 {
				t.Errorf("%s: %q has the id %d, as has %q", file, p.Title, p.ID, other)
			}
			ids[p.ID] = p.Title
			if p.Title == "" || strings.ContainsAny(p.Title, "?!") {
				t.Errorf("%s: panel %d has the title %q, which says not what is shown", file, p.ID, p.Title)
			}
			if p.Type != "row" {
				p.check(t)
				if room := p.GridPos.W * lettersPerColumn; len(p.Title) > room {
					t.Errorf("%s: %q is longer than the %d letters there is room for", file, p.Title, room)
				}
			}
		}
	}
}

// check looks at what a panel has and a row has not.
func (p panel) check(t *testing.T) {
	t.Helper()
	want := source{"prometheus", datasource}
	if p.Description == "" || p.FieldConfig.Defaults.Unit == "" || p.Datasource != want || len(p.Targets) == 0 {
		t.Errorf("%q: description %q, unit %q, datasource %v, %d queries",
			p.Title, p.Description, p.FieldConfig.Defaults.Unit, p.Datasource, len(p.Targets))
	}
	refs := make(map[string]bool)
	for _, q := range p.Targets {
		if refs[q.RefID] || q.RefID == "" || q.Datasource != want {
			t.Errorf("%q: query %q on %v", p.Title, q.RefID, q.Datasource)
		}
		refs[q.RefID] = true
	}
}

func TestNoTwoPanelsCoverEachOther(t *testing.T) {
	for file, d := range imported(t) {
		doNotCover(t, file, d.Panels)
		for _, row := range d.Panels {
			doNotCover(t, file+", "+row.Title, append([]panel{row}, row.Panels...))
		}
	}
}

func doNotCover(t *testing.T, where string, panels []panel) {
	t.Helper()
	const columns = 24
	taken := make(map[[2]int]string)
	for _, p := range panels {
		g := p.GridPos
		if g.W < 4 || g.H < 1 || g.X+g.W > columns {
			t.Errorf("%s: %q is at %+v", where, p.Title, g)
		}
		for x := g.X; x < g.X+g.W; x++ {
			for y := g.Y; y < g.Y+g.H; y++ {
				if other, twice := taken[[2]int{x, y}]; twice {
					t.Fatalf("%s: %q covers %q", where, p.Title, other)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
	}
}

// TestARowThatNeedsSomethingIsCollapsedWithItsPanelsInIt: and each other row stands above its panels.
func TestARowThatNeedsSomethingIsCollapsedWithItsPanelsInIt(t *testing.T) {
	files := imported(t)
	for _, b := range boards.All() {
		rest := files[b.File].Panels
		for _, row := range b.Rows {
			head := rest[0]
			rest = rest[1:]
			panels := head.Panels
			if !head.Collapsed {
				panels, rest = rest[:len(row.Panels)], rest[len(row.Panels):]
			}
			if head.Type != "row" || head.Title != row.Heading() || head.Collapsed != (row.Needs != "") || len(panels) != len(row.Panels) {
				t.Fatalf("%s: %q is %q, collapsed %v, with %d panels; want %d", b.File, row.Heading(), head.Title, head.Collapsed, len(panels), len(row.Panels))
			}
			for i, p := range panels {
				if p.Title != row.Panels[i].Title || p.GridPos.Y <= head.GridPos.Y {
					t.Errorf("%s: %q has %q where %q should be, at line %d", b.File, head.Title, p.Title, row.Panels[i].Title, p.GridPos.Y)
				}
			}
		}
		if len(rest) > 0 {
			t.Errorf("%s: %q is in no row", b.File, rest[0].Title)
		}
	}
}

// The parts of a gateway that may be missing, by a metric of each: a row with such a metric
// in more than one of its panels is about the part, and is closed.
func TestRowsOfPartsThatMayBeMissingAreCollapsed(t *testing.T) {
	optional := regexp.MustCompile(`noncegate_(chain_|eth_|redis_|guard_\w+_(total|bucket|sum)|log_|logs_|logins_|tls_|peers_|forward)`)
	for _, b := range boards.All() {
		for _, row := range b.Rows {
			about := 0
			for _, p := range row.Panels {
				if slices.ContainsFunc(p.Queries, func(q boards.Query) bool { return optional.MatchString(q.Expr) }) {
					about++
				}
			}
			if about > 1 && row.Needs == "" {
				t.Errorf("%s: %q is open, and may have no data", b.File, row.Title)
			}
		}
	}
}

func TestTheVariablesThatPanelsUseAreThere(t *testing.T) {
	used := regexp.MustCompile(`\$\{?(\w+)`)
	for file, d := range imported(t) {
		have := []string{"__rate_interval"} // Grafana's own
		for _, v := range d.Templating.List {
			have = append(have, v.Name)
			if v.Name == "datasource" && v.Type != "datasource" {
				t.Errorf("%s: the variable datasource is of type %q", file, v.Type)
			}
		}
		for _, p := range d.all() {
			for _, q := range p.Targets {
				for _, v := range used.FindAllStringSubmatch(q.Expr+q.Datasource.UID, -1) {
					if !slices.Contains(have, v[1]) {
						t.Errorf("%s: %q uses $%s", file, p.Title, v[1])
					}
				}
			}
		}
	}
}
