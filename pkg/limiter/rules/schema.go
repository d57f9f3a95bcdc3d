package rules

import (
	"fmt"
	"strings"
)

// Schema is the newest form of documents that this release reads. It rises with each
// field or word that the release before refuses; the document itself does not say it.
//
//	1  the first
//	2  match.not; client_ip/N and client_net in keys
const Schema = 2

// Needs returns the schema that a node must read to take these rules, and what in them
// needs it, by its path; that is empty for 1. It goes by the text: even client_ip/64, which
// means client_ip, is a word that schema 1 lacks.
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
