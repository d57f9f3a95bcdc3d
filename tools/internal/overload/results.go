package overload

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"slices"
	"strings"
)

// Results are those of several runs. A new measurement replaces the previous one, so a table can
// be measured in parts.
type Results struct {
	Runs []Measured `json:"runs"`
}

// Measured is one contender's result of one scenario, or its cost of a refusal.
type Measured struct {
	Kind      string   `json:"kind"` // the table: simulation or real
	Contender string   `json:"contender"`
	From      string   `json:"from"` // what was run, in words
	Result    *Result  `json:"result,omitempty"`
	Refusal   *Refusal `json:"refusal,omitempty"`
}

// LoadResults reads a file; one that is missing has none.
func LoadResults(file string) (*Results, error) {
	r := &Results{}
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err == nil {
		err = json.Unmarshal(text, r)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return r, nil
}

// Save writes the results of one kind to a file.
func (r *Results) Save(file, kind string) error {
	var kept Results
	for _, m := range r.Runs {
		if m.Kind == kind {
			kept.Runs = append(kept.Runs, m)
		}
	}
	text, err := json.MarshalIndent(kept, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644)
}

// endless stands for a Variation that JSON cannot write.
const endless = -1

// Put adds what a run measured.
func (r *Results) Put(kind, from string, columns []Column) {
	put := func(m Measured) {
		same := func(o Measured) bool {
			return o.Kind == kind && o.Contender == m.Contender && o.scenario() == m.scenario()
		}
		if at := slices.IndexFunc(r.Runs, same); at >= 0 {
			r.Runs[at] = m
			return
		}
		r.Runs = append(r.Runs, m)
	}
	for _, c := range columns {
		for _, result := range c.Results {
			if math.IsInf(result.Variation, 1) {
				result.Variation = endless
			}
			put(Measured{Kind: kind, Contender: c.Name, From: from, Result: &result})
		}
		if c.Refusal != nil {
			put(Measured{Kind: kind, Contender: c.Name, From: from, Refusal: c.Refusal})
		}
	}
}

func (m *Measured) scenario() string {
	if m.Result == nil {
		return "a refusal"
	}
	return m.Result.Scenario
}

// Columns returns a table's, in the order of the contenders.
func (r *Results) Columns(kind string) (columns []Column) {
	for _, c := range Contenders() {
		column := Column{Name: c.Name}
		for _, m := range r.Runs {
			switch {
			case m.Kind != kind || m.Contender != c.Name:
			case m.Result == nil:
				column.Refusal = m.Refusal
			default:
				result := *m.Result
				if result.Variation == endless {
					result.Variation = math.Inf(1)
				}
				column.Results = append(column.Results, result)
			}
		}
		if column.Results != nil || column.Refusal != nil {
			columns = append(columns, column)
		}
	}
	return columns
}

// Title says which runs a table is from.
func (r *Results) Title(kind string) string {
	var froms []string
	parts := map[string][]string{}
	for _, m := range r.Runs {
		if m.Kind == kind {
			if parts[m.From] == nil {
				froms = append(froms, m.From)
			}
			parts[m.From] = append(parts[m.From], m.Contender+" "+m.scenario())
		}
	}
	if len(froms) == 1 {
		return froms[0]
	}
	var lines []string
	for _, from := range froms {
		lines = append(lines, fmt.Sprintf("- %s: %s", from, strings.Join(parts[from], ", ")))
	}
	return "Of several runs:\n\n" + strings.Join(lines, "\n")
}
