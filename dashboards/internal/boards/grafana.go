package boards

import (
	"bytes"
	"encoding/json"
)

// schemaVersion is the classic model's of Grafana 10; later ones migrate it when
// they read it.
const schemaVersion = 39

// The sizes of panels, in Grafana's grid of 24 columns.
const (
	columns     = 24
	perLine     = 4 // panels beside each other, at most
	graphHeight = 8
	statHeight  = 5
	statsInLine = 6
)

// object is a JSON object; encoding/json writes its keys in order.
type object map[string]any

// datasource is what every panel and query reads from: a variable.
func datasource() object { return object{"type": "prometheus", "uid": "${datasource}"} }

// JSON is the dashboard as Grafana imports it.
func (b Board) JSON() ([]byte, error) {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	err := enc.Encode(object{
		"uid": b.UID, "title": b.Title, "description": b.Description, "tags": []string{"noncegate"},
		"schemaVersion": schemaVersion, "version": 1, "editable": true, "graphTooltip": 1, "timezone": "browser",
		"refresh": "30s", "time": object{"from": "now-1h", "to": "now"},
		"templating": object{"list": variables()}, "annotations": object{"list": []any{}},
		"links": []any{object{
			"type": "dashboards", "title": "Noncegate", "tags": []string{"noncegate"}, "asDropdown": false,
			"icon": "external link", "includeVars": true, "keepTime": true, "targetBlank": false, "url": "", "tooltip": "",
		}},
		"panels": b.panels(),
	})
	return out.Bytes(), err
}

func variables() []any {
	instances := "label_values(noncegate_connections_max, instance)"
	all := object{"selected": true, "text": []string{"All"}, "value": []string{"$__all"}}
	return []any{
		object{
			"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus",
			"current": object{}, "hide": 0, "refresh": 1, "regex": "", "includeAll": false, "multi": false, "options": []any{},
		},
		object{
			"name": instanceVariable, "label": "Instance", "type": "query", "datasource": datasource(),
			"definition": instances, "query": object{"query": instances, "refId": instanceVariable},
			"refresh": 2, "sort": 1, "includeAll": true, "multi": true, "current": all, "hide": 0, "regex": "", "options": []any{},
		},
	}
}

// panels lays the rows out from top to bottom. The panels of a row that is collapsed
// are within it and take no room; Grafana asks their queries once the row is opened.
// It has no way to hide a row by its data: one that repeats over a variable is shown
// once where the variable has no value.
func (b Board) panels() []any {
	var all []any
	id, y := 0, 0
	place := func(p object, w, h, x, y int) object {
		id++
		p["id"], p["gridPos"] = id, object{"w": w, "h": h, "x": x, "y": y}
		return p
	}
	for _, row := range b.Rows {
		collapsed := row.Needs != ""
		head := place(object{"type": "row", "title": row.Heading(), "collapsed": collapsed, "panels": []any{}}, columns, 1, 0, y)
		all = append(all, head)
		y++
		below := y
		var inside []any
		for _, line := range row.Lines() {
			width, height := columns/len(line), graphHeight
			if line[0].Kind == Stat {
				height = statHeight
			}
			for i, p := range line {
				inside = append(inside, place(p.object(), width, height, i*width, below))
			}
			below += height
		}
		if collapsed {
			head["panels"] = inside
			continue
		}
		all = append(all, inside...)
		y = below
	}
	return all
}

// Heading is the title of a row, and what it needs.
func (r Row) Heading() string {
	if r.Needs == "" {
		return r.Title
	}
	return r.Title + " (with " + r.Needs + ")"
}

// Lines are the panels that stand beside each other: as many as there is room
// for, of one kind, and about as many in each line.
func (r Row) Lines() [][]Panel {
	var lines [][]Panel
	for rest := r.Panels; len(rest) > 0; {
		same := 1
		for same < len(rest) && rest[same].Kind == rest[0].Kind {
			same++
		}
		room := perLine
		if rest[0].Kind == Stat {
			room = statsInLine
		}
		need := (same + room - 1) / room
		take := (same + need - 1) / need
		lines = append(lines, rest[:take])
		rest = rest[take:]
	}
	return lines
}

func (p Panel) object() object {
	var targets []any
	for i, q := range p.Queries {
		t := object{
			"refId": string(rune('A' + i)), "datasource": datasource(), "editorMode": "code",
			"expr": q.Expr, "legendFormat": q.Legend,
		}
		t[map[Kind]string{Stat: "instant", Graph: "range"}[p.Kind]] = true
		targets = append(targets, t)
	}
	o := object{
		"type": p.Kind, "title": p.Title, "description": p.Description, "datasource": datasource(), "targets": targets,
	}
	if p.Kind == Stat {
		o["fieldConfig"], o["options"] = p.statField(), statOptions()
	} else {
		o["fieldConfig"], o["options"] = p.graphField(), graphOptions()
	}
	return o
}

func statOptions() object {
	return object{
		"reduceOptions": object{"calcs": []string{"lastNotNull"}, "fields": "", "values": false},
		"colorMode":     "background", "graphMode": "none", "textMode": "value",
	}
}

func graphOptions() object {
	return object{
		"legend":  object{"displayMode": "list", "placement": "bottom", "showLegend": true},
		"tooltip": object{"mode": "multi", "sort": "desc"},
	}
}

func (p Panel) statField() object {
	steps := []any{object{"color": "green", "value": nil}}
	if p.Orange > 0 {
		steps = append(steps, object{"color": "orange", "value": p.Orange})
	}
	if p.Red > 0 {
		steps = append(steps, object{"color": "red", "value": p.Red})
	}
	return object{"overrides": []any{}, "defaults": object{
		"unit": p.Unit, "min": 0, "color": object{"mode": "thresholds"},
		"thresholds": object{"mode": "absolute", "steps": steps},
	}}
}

func (p Panel) graphField() object {
	return object{"overrides": []any{}, "defaults": object{
		"unit": p.Unit, "min": 0, "color": object{"mode": "palette-classic"},
		"custom": object{"drawStyle": "line", "lineWidth": 1, "fillOpacity": 8, "showPoints": "never", "spanNulls": false},
	}}
}
