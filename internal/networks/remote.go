package networks

import "strings"

// byList begins By in decisions of a remote list: the list decided, and no person.
const byList = "list:"

// ByList is what By says of the networks of a remote list.
func ByList(name string) string { return byList + name }

// List returns the name of the remote list that a decision is from, "" for one by hand.
func (d *Decision) List() string {
	name, _ := strings.CutPrefix(d.By, byList)
	if name == d.By {
		return ""
	}
	return name
}
