package access

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/weir-edge/weir/pkg/field"
)

// Role is what a person may do. Each role includes the ones before it.
type Role int

// The roles. None permits nothing.
const (
	None Role = iota
	Reader
	Operator
	Admin
)

var roles = []string{"none", "reader", "operator", "admin"}

// String returns the role's name in configurations.
func (r Role) String() string { return roles[r] }

func (r *Role) UnmarshalField(d *field.Decoder, n *field.Node) {
	if r.UnmarshalText([]byte(n.Text)) != nil {
		d.Fault("must be reader, operator or admin (got %s)", n)
	}
}

func (r Role) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

func (r *Role) UnmarshalText(text []byte) error {
	i := slices.Index(roles[1:], string(text))
	if *r = Role(i + 1); *r == None {
		return fmt.Errorf("may: must be reader, operator or admin (got %.40q)", text)
	}
	return nil
}

// Kinds are what operations change, in configurations.
var Kinds = []string{"clients", "drain", "limits", "policy", "rules", "shedder"}

// EverywhereKind is the kind that takes the right to all regions.
const EverywhereKind = "drain"

// Right is a role, and what bounds its changes. Every role sees everything.
type Right struct {
	May Role `yaml:"may" json:"may" required:"write reader, operator or admin"`
	// Regions and Kinds are those that it may change; none: all.
	Regions []string `yaml:"regions" json:"regions,omitempty"`
	Kinds   []string `yaml:"kinds" json:"kinds,omitempty"`
}

// String describes the right, as "operator for shedder in eu-west, us-east".
func (r Right) String() string {
	text := r.May.String()
	if len(r.Kinds) > 0 {
		text += " for " + strings.Join(r.Kinds, ", ")
	}
	if len(r.Regions) > 0 {
		text += " in " + strings.Join(r.Regions, ", ")
	}
	return text
}

var word = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)

func (r *Right) validate(f *field.Errors) {
	for _, list := range []struct {
		name  string
		items []string
	}{{"regions", r.Regions}, {"kinds", r.Kinds}} {
		switch {
		case list.items == nil:
		case len(list.items) == 0:
			f.Add(list.name, "must name at least one; leave it out for all")
		case r.May == Reader:
			f.Add(list.name, "has no effect with reader, who sees everything and changes nothing; remove it")
		}
	}
	if i := slices.Index(r.Kinds, EverywhereKind); i >= 0 && len(r.Regions) > 0 {
		f.Add(field.Index("kinds", i), "permits nothing in a right with regions: a drain moves clients between regions, so it needs all of them; give it in a right without regions")
	}
	for i, name := range r.Regions {
		if !word.MatchString(name) {
			f.Add(field.Index("regions", i), "must be the name of a region (got %q)", name)
		}
	}
	for i, name := range r.Kinds {
		if !slices.Contains(Kinds, name) {
			f.Add(field.Index("kinds", i), "unknown kind %q%s", name, field.SuggestOr(name, Kinds...))
		}
	}
}

func (r *Right) faults() (f field.Errors) {
	if r.May == None {
		f.Add("may", "must be reader, operator or admin")
	}
	r.validate(&f)
	return f
}

func (r *Right) includes(other *Right) bool {
	return r.May >= other.May && (other.May <= Reader || within(r.Regions, other.Regions) && within(r.Kinds, other.Kinds))
}

// within reports whether a list includes another. An empty one includes all, also what is unknown
// today.
func within(list, other []string) bool {
	return len(list) == 0 || len(other) > 0 && !slices.ContainsFunc(other, func(name string) bool { return !slices.Contains(list, name) })
}

// Rights are all rights of a person.
type Rights []Right

func (r Rights) String() string {
	var list []string
	for _, one := range r {
		list = append(list, one.String())
	}
	return strings.Join(list, "; ")
}

// add adds a right unless another includes it, and removes those that it includes.
func (r Rights) add(right Right) Rights {
	if r.include(&right) {
		return r
	}
	return append(slices.DeleteFunc(r, func(one Right) bool { return right.includes(&one) }), right)
}

func (r Rights) include(right *Right) bool {
	return slices.ContainsFunc(r, func(one Right) bool { return one.includes(right) })
}

// bounded returns what both the rights and another right permit.
func (r Rights) bounded(by *Right) (rights Rights) {
	for _, one := range r {
		both := Right{May: min(one.May, by.May), Regions: common(one.Regions, by.Regions), Kinds: common(one.Kinds, by.Kinds)}
		if both.May == Reader || both.Regions != nil && len(both.Regions) == 0 || both.Kinds != nil && len(both.Kinds) == 0 {
			both = Right{May: Reader}
		}
		rights = rights.add(both)
	}
	return rights
}

// common returns what two lists have in common; nil: both are empty, which stands for all.
func common(a, b []string) []string {
	switch {
	case len(a) == 0:
		return b
	case len(b) == 0:
		return a
	}
	list := []string{}
	for _, name := range a {
		if slices.Contains(b, name) {
			list = append(list, name)
		}
	}
	return list
}

// Regions returns where the rights permit what takes a role and changes a kind: everywhere, or in
// a list of regions.
func (r Rights) Regions(role Role, kind string) (list []string, everywhere bool) {
	for _, one := range r {
		switch {
		case role == None || one.May < role || role > Reader && !within(one.Kinds, []string{kind}):
		case role <= Reader || len(one.Regions) == 0:
			return nil, true
		default:
			list = append(list, one.Regions...)
		}
	}
	slices.Sort(list)
	return slices.Compact(list), false
}

// Forbidden says why a person may not do something.
type Forbidden struct {
	Detail  string
	Regions []string // where they may do it
}

func (f *Forbidden) Error() string { return f.Detail }

// Forbids returns a *Forbidden unless a person who may do something everywhere, or in the permitted
// regions, may do it in the wanted ones, none: all.
func (p Person) Forbids(least Role, kind string, permitted []string, everywhere bool, wanted []string) error {
	if everywhere || len(wanted) > 0 && !slices.ContainsFunc(wanted, func(name string) bool { return !slices.Contains(permitted, name) }) {
		return nil
	}
	what := Right{May: least, Regions: wanted}
	if least > Reader {
		what.Kinds = []string{kind}
	}
	if what.Regions == nil {
		what.Regions = []string{"all regions"}
	}
	f := &Forbidden{fmt.Sprintf("this needs the role %s, and %s is %s;", what, p.Name, p.Rights), permitted}
	if len(permitted) > 0 {
		f.Detail += " name only " + strings.Join(permitted, ", ") + " in region, or"
	}
	f.Detail += " ask the console's administrator"
	return f
}

// ForbidsHalt returns a *Forbidden unless a person may halt a rollout of a kind in these regions, none:
// all. To name fewer regions does not help.
func (p Person) ForbidsHalt(kind string, regions []string) error {
	permitted, everywhere := p.Rights.Regions(Operator, kind)
	if p.Forbids(Operator, kind, permitted, everywhere, regions) == nil {
		return nil
	}
	where := cmp.Or(strings.Join(regions, ", "), "all regions")
	return &Forbidden{Detail: fmt.Sprintf("%s is %s; somebody who is operator for %s in %s must halt it", p.Name, p.Rights, kind, where)}
}

// Grant gives a right to some people.
type Grant struct {
	Who   Members `yaml:"who" required:"name groups or users, as {groups: [sre]}"`
	Right `yaml:",inline"`
}

// Members lists groups, and people by name. The group * contains everyone who is authenticated.
type Members struct {
	Groups []string `yaml:"groups"`
	Users  []string `yaml:"users"`
}

// Everybody is the group of all authenticated people.
const Everybody = "*"

func (m *Members) has(name string, groups []string) bool {
	return slices.Contains(m.Users, name) || slices.ContainsFunc(m.Groups, func(g string) bool { return g == Everybody || slices.Contains(groups, g) })
}

func (m *Members) validate(f *field.Errors) {
	if len(m.Groups)+len(m.Users) == 0 {
		f.Add("", "must name groups or users, as {groups: [sre]}")
	}
	for _, list := range []struct {
		path  string
		names []string
	}{{"groups", m.Groups}, {"users", m.Users}} {
		for i, name := range list.names {
			path := field.Index(list.path, i)
			if err := checkName(name); err != nil {
				f.Add(path, "%v", err)
			} else if name == Everybody && list.path == "users" {
				f.Add(path, "must be the name of a person; the group %q contains everyone", Everybody)
			}
		}
	}
}

// Roles assigns rights.
type Roles []Grant

// of returns a person's rights.
func (r Roles) of(name string, groups []string) (rights Rights) {
	for _, grant := range r {
		if grant.Who.has(name, groups) {
			rights = rights.add(grant.Right)
		}
	}
	return rights
}

// names reports whether a group has a right.
func (r Roles) names(group string) bool {
	return slices.ContainsFunc(r, func(g Grant) bool { return slices.Contains(g.Who.Groups, group) })
}

// Unknown returns the regions that are named and not among the known ones.
func (r Roles) Unknown(known []string) (list []string) {
	for _, grant := range r {
		for _, name := range grant.Regions {
			if !slices.Contains(known, name) {
				list = append(list, name)
			}
		}
	}
	return list
}

func (r Roles) validate(f *field.Errors) {
	if len(r) == 0 {
		f.Add("roles", "must give someone a role, as [{who: {groups: [sre]}, may: operator}]")
	}
	for i := range r {
		of(f, field.Index("roles", i), r[i].Right.validate)
		of(f, field.Join(field.Index("roles", i), "who"), r[i].Who.validate)
	}
}
