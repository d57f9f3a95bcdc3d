package rules

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/weir-edge/weir/internal/adminapi"
	"github.com/weir-edge/weir/internal/ctl/fleet"
	"github.com/weir-edge/weir/internal/ctl/kinds"
	"github.com/weir-edge/weir/internal/ctl/term"
	"github.com/weir-edge/weir/internal/ctl/versions"
	"github.com/weir-edge/weir/pkg/limiter/rules"
)

// promote derives each region's document from its active one: one variant of the rule
// replaces both. A region without such an experiment stays unchanged.
func promote(id, variant string) func(context.Context, *fleet.Target, *versions.Step) error {
	return func(_ context.Context, t *fleet.Target, s *versions.Step) error {
		switch {
		case s.From.Damage != nil:
			return term.Failed("nothing was changed: %s: %w", t.Name, s.From.Damage)
		case s.From.State != fleet.Active:
			return term.Misused("nothing was changed: %s: no rules are published there", t.Name)
		}
		rule, ok := kinds.RulesOf(s.From.Document).Set.Rule(id)
		if !ok || rule.Experiment == nil {
			s.Next = s.From.Document
			return nil
		}
		text, err := Promoted(s.From.Document.Bytes, id, variant == adminapi.VariantExperiment)
		if err == nil {
			s.Next, err = fleet.ParseDocument(kinds.Rules, "the "+variant+" of "+id, text)
		}
		if err != nil {
			return term.Failed("nothing was changed: %s: %w; edit the document and apply it", t.Name, err)
		}
		s.Next.Made = true
		return nil
	}
}

// Promoted returns a document in which a rule has no experiment and, if tried, the
// experiment's fields. Comments and everything else stay.
func Promoted(text []byte, id string, tried bool) ([]byte, error) {
	_, before, err := rules.LoadDocument(text)
	if err != nil {
		return nil, err
	}
	want := *before
	want.Rules = slices.Clone(before.Rules)
	at := slices.IndexFunc(want.Rules, func(r rules.Rule) bool { return r.ID == id })
	if rule := &want.Rules[at]; tried {
		*rule = *rule.Experiment.Merge(rule)
	} else {
		rule.Experiment = nil
	}
	var root yaml.Node
	if err := yaml.Unmarshal(text, &root); err != nil {
		return nil, err
	}
	list := memberOf(root.Content[0], "rules")
	if list == nil || at >= len(list.Content) {
		return nil, errors.New("has no list of rules")
	}
	rewrite(list.Content[at], tried, &want.Rules[at])
	var out bytes.Buffer
	e := yaml.NewEncoder(&out)
	e.SetIndent(2)
	if err := e.Encode(&root); err != nil {
		return nil, err
	}
	// What is published must be what was shown: no other rule may change its meaning.
	_, after, err := rules.LoadDocument(out.Bytes())
	if err != nil {
		return nil, err
	}
	if !reflect.DeepEqual(&want, after) {
		return nil, fmt.Errorf("the document cannot be rewritten without changing what it says")
	}
	return out.Bytes(), nil
}

// memberOf returns the value of a field of a map; nil if it has none.
func memberOf(m *yaml.Node, name string) *yaml.Node {
	for i := 0; i+1 < len(m.Content); i += 2 {
		if m.Content[i].Value == name {
			return m.Content[i+1]
		}
	}
	return nil
}

// rewrite removes a rule's experiment, after copying its fields to the rule if tried.
func rewrite(rule *yaml.Node, tried bool, want *rules.Rule) {
	experiment := memberOf(rule, "experiment")
	remove(rule, "experiment")
	if !tried {
		return
	}
	for i := 0; i+1 < len(experiment.Content); i += 2 {
		name, value := experiment.Content[i], experiment.Content[i+1]
		if name.Value == "share" || name.Value == "name" {
			continue
		}
		if old := memberOf(rule, name.Value); old != nil {
			value.LineComment = cmp.Or(value.LineComment, old.LineComment)
			*old = *value
		} else {
			rule.Content = append(rule.Content, name, value)
		}
	}
	for name, gone := range map[string]bool{"storage": want.Storage == "", "burst": want.Burst == nil, "min_interval": want.MinInterval == ""} {
		if gone {
			remove(rule, name)
		}
	}
}

func remove(m *yaml.Node, name string) {
	for i := 0; i+1 < len(m.Content); i += 2 {
		if m.Content[i].Value == name {
			m.Content = slices.Delete(m.Content, i, i+2)
			return
		}
	}
}
