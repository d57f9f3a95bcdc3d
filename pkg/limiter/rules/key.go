package rules

import (
	"cmp"
	"net/textproto"
	"strings"

	"github.com/weir-edge/weir/pkg/digest"
	"github.com/weir-edge/weir/pkg/field"
	"github.com/weir-edge/weir/pkg/paths"
)

// KeyKind is a kind of value that a rule counts by.
type KeyKind uint8

// The kinds.
const (
	ByClient KeyKind = iota
	ByHeader
	ByCookie
	ByQuery
	ByHost
	ByPath
	ByMethod
	ByTier
	ByNet
	ByDescriptor // of a call: the value of its entry Name, or the whole descriptor
	ByRisk       // the client's tier under the behavior policy
)

var keyKinds = []string{"client_ip", "header", "cookie", "query", "host", "path", "method", "tier", "client_net", "descriptor", "risk"}

// KeyPart is one of the values that a rule counts by.
type KeyPart struct {
	Kind KeyKind
	Name string // of the header, cookie or query parameter
	network
}

// String returns the part as written in rules, in its shortest form.
func (k KeyPart) String() string {
	if k.secret() || k.Kind == ByDescriptor && k.Name != "" {
		return keyKinds[k.Kind] + ":" + k.Name
	}
	return keyKinds[k.Kind] + k.suffix(k.Kind)
}

// OfClient reports whether the part is the client's address or a network that holds it.
func (k KeyPart) OfClient() bool { return k.Kind == ByClient || k.Kind == ByNet }

// secret reports whether the kind's values may be credentials, which must not reach a store
// or a log. These are the kinds that have a name.
func (k KeyPart) secret() bool { return k.Kind >= ByHeader && k.Kind <= ByQuery }

// optional reports whether a request may lack the kind. An empty value of another kind
// counts under noValue: a client must not escape a rule by omitting its Host.
func (k KeyPart) optional() bool { return k.secret() || k.Kind == ByTier }

func (v *reader) key(list []string) []KeyPart {
	if list == nil {
		v.bad("key", "is required; write key: [client_ip], or key: [] to count all requests together")
		return nil
	}
	return v.keyParts("key", list)
}

func (v *reader) keyParts(name string, list []string) []KeyPart {
	if len(list) == 0 {
		return nil
	}
	if len(list) > maxKeyParts {
		v.bad(name, "has more than %d parts (got %d)", maxKeyParts, len(list))
		return nil
	}
	var parts []KeyPart
	v.values(name, list, func(at, text string) (string, bool) {
		part, ok := v.keyPart(at, text)
		if ok {
			parts = append(parts, part)
		}
		return part.String(), ok
	})
	return parts
}

func (v *reader) keyPart(at, text string) (KeyPart, bool) {
	word, name, named := strings.Cut(text, ":")
	var lengths string
	if !named {
		word, lengths, _ = strings.Cut(word, "/")
	}
	for kind, known := range keyKinds {
		if known != word {
			continue
		}
		part := KeyPart{Kind: KeyKind(kind), Name: name}
		switch {
		case part.OfClient() && !named:
			var ok bool
			if part.network, ok = parseNetwork(part.Kind, strings.TrimPrefix(text, word)); !ok {
				v.bad(at, "%s (got %s)", networkForms[part.Kind], field.Shown(text))
			}
			return part, ok
		case part.Kind == ByDescriptor && v.index < 0:
			v.bad(at, "only rules count descriptors; remove it")
		case part.Kind == ByRisk && v.index < 0:
			v.bad(at, "only rules count risk tiers; remove it")
		case part.Kind == ByDescriptor && lengths == "" && (!named || name != ""):
			return part, true
		case (named || lengths != "") && !part.secret():
			v.bad(at, "takes no name; write %s (got %s)", word, field.Shown(text))
		case part.secret() && name == "":
			v.bad(at, "needs a name, as in %s:session (got %s)", word, field.Shown(text))
		case part.Kind == ByQuery && (len(name) > maxName || !printableText(name)):
			v.bad(at, "must name a query parameter of at most %d bytes without control characters (got %s)", maxName, field.Shown(text))
		case (part.Kind == ByHeader || part.Kind == ByCookie) && !isToken(name):
			v.bad(at, "must name a %s of at most %d letters, digits and -_. (got %s)", word, maxName, field.Shown(text))
		default:
			if part.Kind == ByHeader {
				part.Name = textproto.CanonicalMIMEHeaderKey(name)
			}
			return part, true
		}
		return KeyPart{}, false
	}
	hint := cmp.Or(field.Suggest(word, keyKinds...), "; use client_ip, client_net, header:NAME, cookie:NAME, query:NAME, host, path, method, tier or risk")
	v.bad(at, "unknown key part %s%s", field.Shown(text), hint)
	return KeyPart{}, false
}

const (
	noValue     = "~missing" // after escaping, only a hash begins with ~
	noSubject   = "*"
	longestText = 64
	hashedBytes = 16
)

// appendKey appends the key that c counts a request under. It returns false if the request
// lacks a part and is not to be counted.
func (c *Compiled) appendKey(dst []byte, q *request) (key []byte, counted bool, dup *DuplicateError) {
	dst = append(dst, "weir:{"...)
	if len(c.Key) == 0 {
		dst = append(dst, noSubject...)
		dst = append(dst, c.infix...)
		return dst, true, nil
	}
	for i := range c.Key {
		part := &c.Key[i]
		if i > 0 {
			dst = append(dst, ':')
		}
		before := len(dst)
		if dst, dup = q.appendPart(dst, part, i == 0); dup != nil {
			return dst, false, dup
		}
		if len(dst) == before {
			if part.optional() && !c.CountMissing {
				return dst, false, nil
			}
			dst = append(dst, noValue...)
		}
		if i == 0 {
			dst = append(dst, c.infix...)
		}
	}
	return dst, true, nil
}

// appendPart appends the value of one part, or nothing if the request has none.
func (q *request) appendPart(dst []byte, part *KeyPart, subject bool) ([]byte, *DuplicateError) {
	if part.Kind == ByDescriptor {
		return q.appendDescriptor(dst, part), nil
	}
	if part.secret() {
		value, n := q.named(part)
		if n > 1 {
			return dst, &DuplicateError{keyKinds[part.Kind], part.Name}
		}
		if n == 0 || len(value) == 0 {
			return q.appendHash(dst, part), nil
		}
		before := len(dst)
		dst = part.appendCanonical(dst, value)
		return digest.Append(dst[:before], dst[before:], hashedBytes), nil
	}
	var value []byte
	switch part.Kind {
	case ByRisk: // a name of letters, digits and hyphens
		return append(dst, q.risk...), nil
	case ByClient, ByNet:
		if subject { // where no address has anything to escape
			return part.appendClient(dst, q.client), nil
		}
		var text [64]byte
		return appendEscaped(dst, part.appendClient(text[:0], q.client), subject), nil
	case ByHost:
		value = q.plainHost()
	case ByPath:
		*q.pathKey = paths.AppendKey((*q.pathKey)[:0], q.path)
		value = *q.pathKey
	case ByMethod:
		value = q.method
	case ByTier:
		value = q.tier
	}
	return appendValue(dst, value, subject), nil
}

// appendHash appends the hash of a value that an operator provided, if any.
func (q *request) appendHash(dst []byte, part *KeyPart) []byte {
	if h, ok := q.Request.(Hashed); ok {
		if hash := h.Hash(part); len(hash) > 0 {
			dst = append(append(dst, '~'), hash...)
		}
	}
	return dst
}

// IsHash reports whether text is the form in which keys hold a secret value: ~ and the
// first 32 hex digits of its SHA-256.
func IsHash(text string) bool {
	return len(text) == 1+2*hashedBytes && text[0] == '~' && strings.Trim(text[1:], "0123456789abcdef") == ""
}

// HashOf returns the hash that keys contain for the value of a part such as
// header:X-Api-Key.
func HashOf(part, value string) string {
	kind, name, _ := strings.Cut(part, ":")
	k := KeyPart{Name: name}
	switch kind {
	case keyKinds[ByHeader]:
		k.Kind = ByHeader
	case keyKinds[ByCookie]:
		k.Kind = ByCookie
	}
	return string(digest.Append(nil, k.appendCanonical(nil, []byte(value)), hashedBytes))
}

// appendCanonical writes a value in the form that its other forms share.
func (k *KeyPart) appendCanonical(dst, value []byte) []byte {
	switch {
	case k.Kind == ByCookie:
		return appendCookie(dst, value)
	case k.Kind == ByHeader && (k.Name == "Authorization" || k.Name == "Proxy-Authorization"):
		return appendAuthorization(dst, value)
	}
	return append(dst, value...)
}

func (q *request) named(part *KeyPart) ([]byte, int) {
	switch part.Kind {
	case ByHeader:
		return q.Header(part.Name)
	case ByCookie:
		return q.Cookie(part.Name)
	}
	return q.Query(part.Name)
}

func appendValue(dst, value []byte, subject bool) []byte {
	if len(value) > longestText {
		return digest.Append(dst, value, hashedBytes)
	}
	return appendEscaped(dst, value, subject)
}

// appendEscaped escapes what could be mistaken for the key's own punctuation: a brace would
// move the key to another cluster slot, and a colon in the rest could make two keys equal.
func appendEscaped(dst, value []byte, subject bool) []byte {
	const digits = "0123456789ABCDEF"
	for _, c := range value {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9',
			c == '.', c == '_', c == '/', c == '-', c == ':' && subject:
			dst = append(dst, c)
		default:
			dst = append(dst, '%', digits[c>>4], digits[c&15])
		}
	}
	return dst
}

// RuleOf returns the id of the rule that a key belongs to, or "".
func RuleOf(key string) string {
	_, rest, _ := strings.Cut(key, "}:")
	id, _, _ := strings.Cut(rest, ":")
	return id
}
