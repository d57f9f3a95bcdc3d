package dashboards

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// dashboard is one page of Grafana.
type dashboard struct {
	uid, title, text string
	variables        []object // after those of all dashboards
	rows             []row
}

// row is a heading and the panels below it, left to right.
type row struct {
	id     int // alerts and links name rows and panels by id: give a new one a new number
	title  string
	folded bool // for what not every site has
	panels []panel
}

type kind string

const (
	series kind = "timeseries"
	stat   kind = "stat"
	table  kind = "table"
	states kind = "state-timeline"
	heat   kind = "heatmap"
)

// panel is one graph. Units are Grafana's names.
type panel struct {
	id            int
	kind          kind
	title, text   string // the text teaches how to read it
	unit          string
	width, height int // of 24 columns; 0 = 8 by 8
	stacked       bool
	signed        bool        // may be below 0
	atMost        float64     // upper end of the axis; 0 = by the data
	below         string      // color below the first step; "" = green
	steps         []step      // levels at which the color changes; drawn as lines in a series. A step under a transparent one colors what is below
	lines         []line      // series drawn as dashed lines
	columns       []column    // for a table, one per query
	words         map[int]any // names of values, for states and stats
	queries       []query
}

// query is PromQL in which {@ stands for { and the variables common to all panels.
type query struct{ legend, expr string }

type step struct {
	from  float64
	color string
}

type line struct{ name, color string }

type column struct{ name, unit string }

// object is a JSON object; its keys are written in alphabetical order.
type object = map[string]any

const (
	selector = `{job=~"$job",region=~"$region",pop=~"$pop"`
	rowWidth = 24
	// grafanaSchema is that of Grafana 11; later versions migrate it on loading.
	grafanaSchema = 39
)

var source = object{"type": "prometheus", "uid": "${datasource}"}

func all() []dashboard {
	return []dashboard{fleet(), limits(), shedder(), stores()}
}

// Files returns the dashboards as Grafana loads them, by file name.
func Files() (map[string][]byte, error) {
	files := map[string][]byte{}
	for _, d := range all() {
		var b bytes.Buffer
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(false)
		e.SetIndent("", "  ")
		if err := e.Encode(d.json()); err != nil {
			return nil, fmt.Errorf("dashboard %s: %w", d.uid, err)
		}
		files[strings.TrimPrefix(d.uid, "weir-")+".json"] = b.Bytes()
	}
	return files, nil
}

func (d dashboard) json() object {
	variables := append([]object{
		{
			"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus",
			"hide": 0, "includeAll": false, "multi": false, "refresh": 1, "regex": "", "skipUrlSync": false,
		},
		choice("job", "Job", `label_values(weir_store_up, job)`, ""),
		choice("region", "Region", `label_values(weir_store_up{job=~"$job"}, region)`, ".*"),
		choice("pop", "PoP", `label_values(weir_store_up{job=~"$job",region=~"$region"}, pop)`, ".*"),
	}, d.variables...)
	return object{
		"annotations":  object{"list": annotations()},
		"description":  d.text,
		"editable":     false,
		"graphTooltip": 1,
		"links": []object{{
			"asDropdown": true, "includeVars": true, "keepTime": true, "tags": []string{"weir"}, "title": "weir", "type": "dashboards",
			"icon": "external link", "targetBlank": false, "tooltip": "", "url": "",
		}},
		"panels":        d.panels(),
		"refresh":       "30s",
		"schemaVersion": grafanaSchema,
		"tags":          []string{"weir"},
		"templating":    object{"list": variables},
		"time":          object{"from": "now-3h", "to": "now"},
		"timezone":      "browser",
		"title":         d.title,
		"uid":           d.uid,
		"version":       1,
	}
}

// choice is a variable whose values a query finds. all replaces the union of the values, and
// matches targets without such a label; "" means the values found.
func choice(name, label, values, all string) object {
	o := object{
		"name": name, "label": label, "type": "query", "datasource": source,
		"query": object{"query": values, "refId": name}, "definition": values, "current": object{"text": []string{"All"}, "value": []string{"$__all"}},
		"hide": 0, "includeAll": true, "multi": true, "refresh": 2, "regex": "", "sort": 1,
	}
	if all != "" {
		o["allValue"] = all
	}
	return o
}

// annotations mark when nodes began to run other rules or shedder settings: a version that was
// absent one step earlier. The step depends on the time shown, because a fixed offset would miss
// changes between two steps.
func annotations() []object {
	change := func(name, color, metric, labels, title, text string) object {
		of := func(offset string) string {
			return "count by (" + labels + ") (" + metric + selector + "}" + offset + ")"
		}
		expr := of("") + " unless " + of(" offset $__interval")
		return object{
			"name": name, "datasource": source, "enable": true, "iconColor": color,
			"expr": expr, "step": "60s", // for Grafana 10 and 11
			"target":      object{"expr": expr, "refId": "Anno", "interval": "60s"}, // for later ones
			"titleFormat": title, "textFormat": text, "tagKeys": "region",
		}
	}
	return []object{
		change("Rules", blue, "weir_rules_info", "region, version", "Rules {{version}}", "first seen in {{region}}"),
		change("Shedder settings", purple, "weir_shedder_info", "region, version, source", "Shedder settings {{version}}", "first seen in {{region}}, from {{source}}"),
	}
}

// panels lays out rows and panels from left to right and from top to bottom.
func (d dashboard) panels() []object {
	var list []object
	y := 0
	for _, r := range d.rows {
		head := object{
			"id": r.id, "type": "row", "title": r.title, "collapsed": r.folded, "panels": []object{},
			"gridPos": object{"x": 0, "y": y, "w": rowWidth, "h": 1},
		}
		y++
		var below []object
		x, tallest := 0, 0
		for _, p := range r.panels {
			w, h := or(p.width, 8), or(p.height, 8)
			if x+w > rowWidth {
				x, y, tallest = 0, y+tallest, 0
			}
			o := p.json()
			o["gridPos"] = object{"x": x, "y": y, "w": w, "h": h}
			below = append(below, o)
			x, tallest = x+w, max(tallest, h)
		}
		y += tallest
		if r.folded {
			head["panels"] = below
			list = append(list, head)
		} else {
			list = append(append(list, head), below...)
		}
	}
	return list
}

func or(n, otherwise int) int {
	if n == 0 {
		return otherwise
	}
	return n
}
