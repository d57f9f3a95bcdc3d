package rules

import (
	"fmt"
	"strings"
)

// Schema is the newest document schema that this release reads. It rises with each field
// or word that the previous release refuses; the document itself does not state it.
//
//	1  the first
//	2  match.not; client_ip/N and client_net in keys
const Schema = 2

// Needs returns the schema that a node must support to read these rules, and where and
// what needs it; "" for 1. It depends on the text: even client_ip/64, which means
// client_ip, is a word that schema 1 lacks.
func Needs(list []Rule) (schema int, what string) {
	for i := range list {
		at := fmt.Sprintf("rules[%d].", i)
		if list[i].Match.Not != nil {
			return 2, at + "match.not"
		}
		if schema, what = KeyNeeds(at+"key", list[i].Key); schema > 1 {
			return schema, what
		}
	}
	return 1, ""
}

// KeyNeeds is Needs for a list of key parts at a path.
func KeyNeeds(at string, list []string) (schema int, what string) {
	for _, part := range list {
		if strings.HasPrefix(part, "client_ip/") || strings.HasPrefix(part, "client_net") {
			return 2, at + ": " + part
		}
	}
	return 1, ""
}
