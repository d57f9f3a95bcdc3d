package rules

import (
	"slices"
	"strings"
)

// mostWanted is how many values of a condition RequiredParams names.
const mostWanted = 3

// RequiredParams returns what a request needs for the rule to count it, as parameters that describe
// it to an operator: path=/login, header=X-Tenant:…. Values of headers and cookies are left
// out, because they may be secret. None means that the rule counts any request.
func (c *Compiled) RequiredParams() (list []string) {
	add := func(name string, values ...string) {
		text := name + "=" + strings.Join(values[:min(len(values), mostWanted)], " or ")
		if len(values) > mostWanted {
			text += " or …"
		}
		if !slices.Contains(list, text) {
			list = append(list, text)
		}
	}
	if c.Domain != "" {
		add("domain", c.Domain)
		add("entry", "KEY=… of its descriptors")
		return list
	}
	var clients []string
	for _, n := range c.match.clients {
		clients = append(clients, n.String())
	}
	for _, part := range []struct {
		name   string
		values []string
	}{{"client", clients}, {"host", c.match.hosts}, {"path", c.match.paths}, {"method", c.match.methods}} {
		if len(part.values) > 0 {
			add(part.name, part.values...)
		}
	}
	for _, h := range c.match.headers {
		add("header", h.name+":…")
	}
	for _, k := range c.Key {
		switch {
		case !k.optional() || c.CountMissing:
		case k.Kind == ByHeader:
			add("header", k.Name+":…")
		case k.Kind == ByCookie:
			add("cookie", k.Name+"=…")
		case k.Kind == ByQuery:
			add("path", "…?"+k.Name+"=…")
		case k.Kind == ByTier:
			add("tier", "…")
		}
	}
	if c.not != nil {
		list = append(list, "nothing that match.not exempts")
	}
	return list
}
