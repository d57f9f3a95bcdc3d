package clientlist

import "strings"

// byList begins By in a remote list's decisions.
const byList = "list:"

// ByList returns By for the networks of a remote list.
func ByList(name string) string { return byList + name }

// List returns the name of the decision's remote list, or "" for a manual decision.
func (d *Decision) List() string {
	name, _ := strings.CutPrefix(d.By, byList)
	if name == d.By {
		return ""
	}
	return name
}
