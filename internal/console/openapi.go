package console

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"

	"github.com/weir-edge/weir/internal/console/access"
	"github.com/weir-edge/weir/internal/plainjson"
)

type object = map[string]any

// describe returns the OpenAPI 3.1 document, made from the handlers' table and the types that
// regionctl prints.
func describe(c Config) []byte {
	schemas := &schemas{object{}}
	problem, session := schemas.of(reflect.TypeFor[Problem]()), schemas.of(reflect.TypeFor[Session]())
	refused := object{"description": "refused or failed; detail says why, and what to do", "content": object{"application/problem+json": object{"schema": problem}}}
	paths := object{
		Prefix + "/session": object{"get": object{"operationId": "session", "summary": "Who you are, what you may do, and the token of writes",
			"responses": object{"200": jsonAnswer("the session", session), "default": refused}}},
		Prefix + "/open": object{"post": object{"operationId": "open", "summary": "Exchange the ticket of the file that opens a local console, in the header " + access.HeaderTicket + ", once",
			"responses": object{"200": jsonAnswer("the token of every request", schemas.of(reflect.TypeFor[Opened]())), "default": refused}}},
		Prefix + "/logout": object{"post": object{"operationId": "logout", "summary": "End this session", "security": []object{{"token": []string{}}},
			"responses": object{"200": jsonAnswer("it has ended", schemas.of(reflect.TypeFor[Goodbye]())), "default": refused}}},
		Prefix + "/tokens": object{
			"get": object{"operationId": "tokens", "summary": "Your tokens for machines; for an admin of everything, all",
				"responses": object{"200": jsonAnswer("the tokens, without their text", schemas.of(reflect.TypeFor[TokenList]())), "default": refused}},
			"post": object{"operationId": "tokens.create", "summary": fmt.Sprintf("Create a token for machines with at most your rights, for at most %d days. A token cannot do this", access.MostDays), "security": []object{{"token": []string{}}},
				"requestBody": object{"required": true, "content": object{"application/json": object{"schema": schemas.of(reflect.TypeFor[NewToken]())}}},
				"responses":   object{"200": jsonAnswer("the token, which is shown once", schemas.of(reflect.TypeFor[CreatedToken]())), "default": refused}}},
		Prefix + "/tokens/{name}/revoke": object{"post": object{"operationId": "tokens.revoke", "summary": "End a token now", "security": []object{{"token": []string{}}},
			"parameters": []object{{"name": "name", "in": "path", "required": true, "schema": object{"type": "string"}}},
			"responses":  object{"200": jsonAnswer("the token that has ended", schemas.of(reflect.TypeFor[access.Issued]())), "default": refused}}},
	}
	for _, o := range Operations() {
		result := object{}
		if t := c.Answers[strings.TrimSuffix(o.ID, ".events")]; t != nil {
			result = schemas.of(t)
		}
		if o.Rollout != "" {
			result = schemas.of(reflect.TypeFor[Rollout]())
		}
		good := jsonAnswer("what the command found out", object{
			"type": "object", "required": []string{"command", "result"}, "additionalProperties": false,
			"properties": object{
				"command": object{"type": "string", "description": "what does the same in a shell"}, "result": result,
				"notes":      object{"type": "array", "items": object{"type": "string"}, "description": "the command's warnings and progress"},
				"incomplete": object{"type": "string", "description": "what is missing: regions that did not answer, edges that are behind"},
			},
		})
		if o.Streams {
			good = object{"description": "events: look, whose data is the result; problem, whose data is a problem", "content": object{"text/event-stream": object{"schema": result}}}
		}
		described := object{
			"operationId": o.ID, "summary": o.Summary, "description": o.does() + ". Least role: " + o.Least.String() + ".",
			"responses": object{"200": good, "default": refused},
		}
		o.parameters(described)
		if o.Writes {
			described["security"] = []object{{"token": []string{}}}
		}
		at, _ := paths[Prefix+o.Path].(object)
		if at == nil {
			at = object{}
			paths[Prefix+o.Path] = at
		}
		at[strings.ToLower(o.Method)] = described
	}
	return encode(object{
		"openapi": "3.1.0",
		"info": object{"title": "regionctl console", "version": "1",
			"description": "Each operation does what a command of regionctl does, and answers with what that prints, and with the command itself."},
		"paths": paths,
		"components": object{
			"schemas":         schemas.named,
			"securitySchemes": object{"token": object{"type": "apiKey", "in": "header", "name": access.HeaderToken, "description": "the token of GET " + Prefix + "/session, or one for machines"}},
		},
	})
}

func jsonAnswer(what string, schema object) object {
	return object{"description": what, "content": object{"application/json": object{"schema": schema}}}
}

// parameters adds an operation's inputs.
func (o *Operation) parameters(to object) {
	parameters, fields, required := []object{}, object{}, []string{}
	for _, in := range o.Inputs {
		schema := in.schema()
		switch {
		case strings.Contains(o.Path, "{"+in.Name+"}"):
			parameters = append(parameters, object{"name": in.Name, "in": "path", "required": true, "description": in.About, "schema": schema})
		case o.Method == "GET":
			parameters = append(parameters, object{"name": in.Name, "in": "query", "required": in.Required, "description": in.About, "schema": schema})
		default:
			schema["description"] = in.About
			if fields[in.Name] = schema; in.Required {
				required = append(required, in.Name)
			}
		}
	}
	if len(parameters) > 0 {
		to["parameters"] = parameters
	}
	if o.Method == "GET" {
		return
	}
	if o.Document != "" {
		fields["document"] = object{"type": "string", "description": "the text of " + o.Document}
		required = append(required, "document")
	}
	kind := "application/json"
	if o.Upload != "" {
		kind = "multipart/form-data"
		fields["log"] = object{"type": "string", "contentMediaType": "application/octet-stream", "description": o.Upload + ", plain or compressed with gzip; the last part, read while it arrives"}
		required = append(required, "log")
	}
	body := object{"type": "object", "properties": fields, "additionalProperties": false}
	if len(required) > 0 {
		body["required"] = required
	}
	to["requestBody"] = object{"required": true, "content": object{kind: object{"schema": body}}}
}

func (in *Input) schema() object {
	text := object{"type": "string", "maxLength": 1300}
	if in.Longest > 0 {
		text["maxLength"] = in.Longest
	}
	if in.Check != nil {
		text["pattern"] = in.Check.String()
	}
	switch in.Shape {
	case List:
		return object{"type": "array", "items": text, "maxItems": mostValues}
	case Bool:
		return object{"type": "boolean"}
	}
	return text
}

// encode returns v as JSON, without anything that a terminal would interpret.
func encode(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // maps, strings, numbers and JSON always encode
	}
	return plainjson.Escape(text)
}
