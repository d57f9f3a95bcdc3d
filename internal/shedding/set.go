package shedding

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/weir-edge/weir/pkg/field"
)

// Set returns a copy of d with one field changed, named by its path as in
// signals.inflight.high. A class is named by its name or index, as in
// classes.read.max_in_flight. The value is written as in the document, even a list or a map; an
// empty one removes an optional field. The error is that of Parse for the whole document.
func Set(d *Document, path, value string) (*Document, error) {
	fault := func(format string, args ...any) error {
		return &field.Error{Path: path, Msg: fmt.Sprintf(format, args...)}
	}
	data, err := d.YAML()
	if err != nil {
		return nil, err
	}
	root, err := field.Read(data, &form)
	if err != nil {
		return nil, err
	}
	steps := strings.Split(strings.NewReplacer("[", ".", "]", "").Replace(path), ".")
	for _, step := range steps {
		if step == "" {
			return nil, fault("is not a path; write it as signals.inflight.high")
		}
	}
	given, err := readValue(value)
	if err != nil {
		return nil, fault("%s", field.All(err)[0].Msg)
	}
	at := root
	for i, step := range steps {
		pos, err := find(at, step)
		if err != nil {
			return nil, fault("%s: %v", strings.Join(steps[:i], "."), err)
		}
		last := i == len(steps)-1
		if pos < 0 {
			if given == nil {
				return nil, fault("is not set; there is nothing to remove")
			}
			pos = len(at.Items)
			at.Names, at.Items = append(at.Names, step), append(at.Items, field.Node{Kind: field.Map})
		}
		switch next := &at.Items[pos]; {
		case last && given == nil:
			at.Items = slices.Delete(at.Items, pos, pos+1)
			if at.Kind == field.Map {
				at.Names = slices.Delete(at.Names, pos, pos+1)
			}
		case last:
			*next = *given
		default:
			// signals.cpu.high turns a signal on that is off.
			if next.Kind == field.Null || next.Kind == field.Text && next.Text == off {
				*next = field.Node{Kind: field.Map}
			}
			at = next
		}
	}
	next, faults := decode(root)
	if faults != nil {
		return nil, faults
	}
	next.Version = d.Version
	return next, nil
}

// readValue returns a field's new value; nil removes it.
func readValue(text string) (*field.Node, error) {
	switch strings.TrimSpace(text) {
	case "":
		return nil, nil
	case "null", "~":
		return &field.Node{Kind: field.Null}, nil
	}
	return field.Read([]byte(text), &form)
}

// find returns the index of a step in n's items, or -1 if it is absent.
func find(n *field.Node, step string) (int, error) {
	switch n.Kind {
	case field.Map:
		return slices.Index(n.Names, step), nil
	case field.List:
		if i, err := strconv.Atoi(step); err == nil && i >= 0 && i < len(n.Items) {
			return i, nil
		}
		var names []string
		for i := range n.Items {
			if at := slices.Index(n.Items[i].Names, "name"); at >= 0 {
				name := n.Items[i].Items[at].Text
				if names = append(names, name); name == step {
					return i, nil
				}
			}
		}
		if names == nil {
			return -1, fmt.Errorf("has no item %s; there are %d", step, len(n.Items))
		}
		return -1, fmt.Errorf("has no %s; there are %s", step, strings.Join(names, ", "))
	}
	return -1, fmt.Errorf("is a single value and has no %s", step)
}
