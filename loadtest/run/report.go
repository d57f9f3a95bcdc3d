package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"text/tabwriter"
	"time"
)

// report is a whole run.
type report struct {
	Began     time.Time `json:"began"`
	Seconds   float64   `json:"seconds"`
	Form      string    `json:"form"`
	Lab       state     `json:"lab"`
	Scenarios []result  `json:"scenarios"`
	Chosen    int       `json:"chosen"` // how many should be played
	// Why there are fewer, or why the lab is not as it was.
	Incomplete string `json:"incomplete,omitempty"`
}

// Total is how many scenarios there should be.
func (r *report) Total() int { return max(r.Chosen, len(r.Scenarios)) }

// Repeats returns how many attempts do not count.
func (r *report) Repeats() int {
	n := 0
	for _, s := range r.Scenarios {
		n += len(s.Repeated)
	}
	return n
}

func (r *report) good() bool {
	if r.Incomplete != "" || len(r.Scenarios) < r.Chosen {
		return false
	}
	for _, s := range r.Scenarios {
		if len(s.Problems) > 0 {
			return false
		}
	}
	return true
}

// row is a region's line of the summary.
type row struct {
	traffic
	Over, Wrong, Retry int     // in phases with a bound of 0
	FaultOver          int     // in the others
	FaultWrong         int     //
	Worst, Bound       float64 // percent of the limit, in the others
	Fallback           int
}

func (r *result) rows(lab state) []row {
	var rows []row
	regions := lab.Regions
	if slices.ContainsFunc(r.Report, func(l line) bool { return l.Region == everywhere }) {
		regions = append(slices.Clone(regions), region{Name: everywhere})
	}
	for _, region := range regions {
		w := row{traffic: traffic{Region: region.Name}, Fallback: r.Fallback[region.Name]}
		for _, t := range r.Traffic {
			if t.Region == region.Name {
				w.traffic = t
			}
		}
		for _, l := range r.Report {
			if l.Region != region.Name {
				continue
			}
			if region.Name == everywhere {
				w.Passed += l.Admitted
				w.Limited += l.Refused
			}
			if b := r.bound(l); b != nil && b.Percent > 0 {
				w.FaultOver += l.Overadmitted
				w.FaultWrong += l.WronglyRefused
				w.Bound = max(w.Bound, b.Percent)
				if l.Worst != nil {
					w.Worst = max(w.Worst, l.Worst.Percent)
				}
				continue
			}
			w.Over += l.Overadmitted
			w.Wrong += l.WronglyRefused
			w.Retry += l.RetryWrong
		}
		rows = append(rows, w)
	}
	return rows
}

// print shows a scenario by region.
func (r *result) print(out io.Writer, lab state) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "   \tpassed\tlimited\tshed\tfailed\tp50 ms\tp95 ms\tover\twrong\tretry\tin the fault: over\twrong\tworst\tbound\t")
	for _, row := range r.rows(lab) {
		fault := "\t\t\t"
		if row.Bound > 0 {
			fault = fmt.Sprintf("%d\t%d\t%.0f%%\t%.0f%%", row.FaultOver, row.FaultWrong, row.Worst, row.Bound)
		}
		fmt.Fprintf(w, "   %s\t%d\t%d\t%d\t%d\t%.1f\t%.1f\t%d\t%d\t%d\t%s\t\n", row.Region, row.Passed, row.Limited, row.Shed, row.Failed, row.P50, row.P95, row.Over, row.Wrong, row.Retry, fault)
	}
	_ = w.Flush()
	if short := r.Short(); short != "" {
		fmt.Fprintln(out, "   note:", short)
	}
	for _, p := range r.Problems {
		fmt.Fprintln(out, "   FAILED:", p)
	}
	if r.MustFail && len(r.Problems) == 0 {
		fmt.Fprintln(out, "   good: the oracle found the rule that limits nothing")
	}
}

func (r *report) print(out io.Writer, folder string) {
	good := 0
	for _, s := range r.Scenarios {
		if len(s.Problems) == 0 {
			good++
		}
	}
	fmt.Fprintf(out, "%d of %d scenarios good, %.0f s", good, r.Total(), r.Seconds)
	if n := r.Repeats(); n > 0 {
		fmt.Fprintf(out, ", %d played again", n)
	}
	if r.Incomplete != "" {
		fmt.Fprint(out, ", INCOMPLETE")
	}
	fmt.Fprintf(out, "; %s\n", filepath.Join(folder, "report.html"))
}

// write writes both forms.
func (r *report) write(folder string) error {
	text, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(folder, "report.json"), append(text, '\n'), 0o644); err != nil {
		return err
	}
	var page bytes.Buffer
	if err := r.html(&page); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, "report.html"), page.Bytes(), 0o644)
}
