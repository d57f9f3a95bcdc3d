package dashboards

import (
	"cmp"
	"strconv"
	"strings"
)

func (p panel) json() object {
	o := object{
		"id": p.id, "type": string(p.kind), "title": p.title, "description": p.text,
		"datasource": source, "targets": p.targets(),
		"fieldConfig": object{"defaults": p.defaults(), "overrides": p.overrides()},
		"options":     p.options(),
	}
	if p.kind == table {
		o["transformations"] = p.transformations()
	}
	return o
}

func refID(i int) string { return string(rune('A' + i)) }

func (p panel) targets() []object {
	var list []object
	for i, q := range p.queries {
		target := object{
			"datasource": source, "editorMode": "code", "refId": refID(i),
			"expr": strings.ReplaceAll(q.expr, "{@", selector), "legendFormat": q.legend,
		}
		switch p.kind {
		case table:
			target["instant"], target["format"] = true, "table"
		case stat:
			target["instant"] = true
		case heat:
			target["range"], target["format"] = true, "heatmap"
		default:
			target["range"] = true
		}
		list = append(list, target)
	}
	return list
}

func (p panel) defaults() object {
	below := cmp.Or(p.below, green)
	steps := []object{{"color": below, "value": nil}}
	for _, s := range p.steps {
		steps = append(steps, object{"color": s.color, "value": s.from})
	}
	d := object{
		// Also for states, whose colors come from their words: if colored by
		// thresholds, Grafana shows the thresholds instead of the words.
		"unit": p.unit, "color": object{"mode": "palette-classic"},
		"thresholds": object{"mode": "absolute", "steps": steps},
	}
	if len(p.words) > 0 {
		words := object{}
		for value, word := range p.words {
			words[strconv.Itoa(value)] = word
		}
		d["mappings"] = []object{{"type": "value", "options": words}}
	}
	switch p.kind {
	case series:
		if !p.signed {
			d["min"] = 0
		}
		if p.atMost > 0 {
			d["max"] = p.atMost
		}
		custom := object{"drawStyle": "line", "lineWidth": 1, "fillOpacity": 10, "showPoints": "never", "spanNulls": false}
		if p.stacked {
			custom["stacking"], custom["fillOpacity"] = object{"mode": "normal", "group": "A"}, 40
		}
		if len(p.steps) > 0 {
			custom["thresholdsStyle"] = object{"mode": "dashed"}
			custom["axisSoftMax"] = p.steps[len(p.steps)-1].from // or a line beyond the data would be invisible
			if p.steps[0].from < 0 {
				custom["axisSoftMin"] = p.steps[0].from
			}
		}
		d["custom"] = custom
	case stat:
		d["color"] = object{"mode": "thresholds"}
	case table:
		d["custom"] = object{"align": "auto", "cellOptions": object{"type": "auto"}, "filterable": true}
	}
	return d
}

func (p panel) overrides() []object {
	property := func(id string, value any) object { return object{"id": id, "value": value} }
	list := []object{}
	for _, l := range p.lines {
		list = append(list, object{
			"matcher": object{"id": "byName", "options": l.name},
			"properties": []object{
				property("color", object{"mode": "fixed", "fixedColor": l.color}),
				property("custom.lineStyle", object{"fill": "dash", "dash": []int{10, 10}}),
				property("custom.fillOpacity", 0),
				property("custom.lineWidth", 2),
				property("custom.stacking", object{"mode": "none"}),
			},
		})
	}
	for i, c := range p.columns {
		value := "Value #" + refID(i)
		if len(p.queries) == 1 { // Grafana's name in this case
			value = "Value"
		}
		list = append(list, object{
			"matcher":    object{"id": "byName", "options": value},
			"properties": []object{property("displayName", c.name), property("unit", c.unit)},
		})
	}
	return list
}

func (p panel) options() object {
	switch p.kind {
	case series:
		return object{
			"legend":  object{"displayMode": "table", "placement": "bottom", "showLegend": true, "calcs": []string{"lastNotNull", "max"}},
			"tooltip": object{"mode": "multi", "sort": "desc"},
		}
	case stat:
		return object{
			"colorMode": "value", "graphMode": "none", "justifyMode": "auto", "orientation": "auto", "textMode": "auto",
			"reduceOptions": object{"calcs": []string{"lastNotNull"}, "fields": "", "values": false},
		}
	case states:
		return object{
			"alignValue": "left", "mergeValues": true, "rowHeight": 0.9, "showValue": "auto",
			"legend": object{"displayMode": "list", "placement": "bottom", "showLegend": true, "calcs": []string{}}, "tooltip": object{"mode": "single", "sort": "none"},
		}
	case heat:
		return object{
			"calculate": false, "cellGap": 1, "color": object{"mode": "scheme", "scheme": "Oranges", "fill": "dark-orange", "steps": 64, "exponent": 0.5, "reverse": false},
			"cellValues": object{"unit": perSecond}, "yAxis": object{"axisPlacement": "left", "unit": p.unit},
			"tooltip": object{"mode": "single", "yHistogram": false}, "legend": object{"show": true},
		}
	default:
		return object{"showHeader": true, "cellHeight": "sm"}
	}
}

// transformations merge the answers for the same labels into one row.
func (p panel) transformations() []object {
	hidden := object{"Time": true, "__name__": true, "job": true}
	return []object{
		{"id": "merge", "options": object{}},
		{"id": "organize", "options": object{"excludeByName": hidden, "indexByName": object{"region": 0, "pop": 1}, "renameByName": object{}}},
	}
}
