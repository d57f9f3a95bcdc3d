package shedding

import (
	"fmt"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/weir-edge/weir/pkg/shedder"
)

// Set returns a document that differs from d in one field, named by its path as in
// signals.inflight.high; d stays as it is. A class is named by its name or its place,
// as in classes.read.max_in_flight. The value is written as in the document, also a
// list or a map; an empty one removes a field that need not be there. The error is
// that of Parse for the whole document.
func Set(d *Document, path, value string) (*Document, error) {
	fault := func(format string, args ...any) error {
		return &shedder.FieldError{Field: path, Msg: fmt.Sprintf(format, args...)}
	}
	data, err := d.YAML()
	if err != nil {
		return nil, err
	}
	root, err := parse(data)
	if err != nil {
		return nil, err
	}
	steps := strings.Split(strings.NewReplacer("[", ".", "]", "").Replace(path), ".")
	for _, step := range steps {
		if step == "" {
			return nil, fault("is no path; write it as signals.inflight.high")
		}
	}
	var given *yaml.Node
	if value != "" {
		if given, err = read([]byte(value)); err != nil && err != errEmpty {
			return nil, fault("%v", err)
		}
		if err == errEmpty { // null, as in signals.cpu=null
			given = &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null"}
		}
	}
	at := root
	for i, step := range steps {
		place, err := find(at, step)
		if err != nil {
			return nil, fault("%s: %v", strings.Join(steps[:i], "."), err)
		}
		last := i == len(steps)-1
		switch {
		case place >= 0 && last && given == nil:
			from := place
			if at.Kind == yaml.MappingNode {
				from-- // its name
			}
			at.Content = append(at.Content[:from], at.Content[place+1:]...)
		case place >= 0 && last:
			at.Content[place] = given
		case place < 0 && given == nil:
			return nil, fault("is not set; there is nothing to remove")
		case place < 0 && last:
			at.Content = append(at.Content, key(step), given)
		case place < 0:
			at.Content = append(at.Content, key(step), &yaml.Node{Kind: yaml.MappingNode})
			at = at.Content[len(at.Content)-1]
		default:
			// signals.cpu.high turns on what is off.
			if next := at.Content[place]; next.Kind == yaml.ScalarNode && (next.Value == off || next.Tag == "!!null") {
				at.Content[place] = &yaml.Node{Kind: yaml.MappingNode}
			}
			at = at.Content[place]
		}
	}
	next, err := decode(root, nil)
	if err != nil {
		return nil, err
	}
	next.Version = d.Version
	return next, nil
}

func key(name string) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: name}
}

// find returns where a step leads within n's content, or -1 if nothing is there yet.
func find(n *yaml.Node, step string) (int, error) {
	switch n.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			if n.Content[i].Value == step {
				return i + 1, nil
			}
		}
		return -1, nil
	case yaml.SequenceNode:
		if i, err := strconv.Atoi(step); err == nil && i >= 0 && i < len(n.Content) {
			return i, nil
		}
		var names []string
		for i, item := range n.Content {
			if at, err := find(item, "name"); err == nil && at >= 0 {
				if names = append(names, item.Content[at].Value); item.Content[at].Value == step {
					return i, nil
				}
			}
		}
		if names == nil {
			return -1, fmt.Errorf("has no item %s; there are %d", step, len(n.Content))
		}
		return -1, fmt.Errorf("has no %s; there are %s", step, strings.Join(names, ", "))
	}
	return -1, fmt.Errorf("is a single value and has no %s", step)
}
