// Package nginx translates the request limits of an nginx configuration into rules, and
// models what nginx does with them.
package nginx

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
)

// MaxBytes bounds a configuration, including everything it includes.
const MaxBytes = 8 << 20

// Source reads the files of a configuration.
type Source struct {
	// Read returns a file, at most max bytes.
	Read func(max int, name string) ([]byte, error)
	// Glob returns the files of a pattern, which is absolute or relative to the first file.
	Glob func(pattern string) ([]string, error)
}

// directive is one directive, with its block if it has one.
type directive struct {
	name  string
	args  []string
	block []directive
	isSet bool   // it has a block
	at    string // file:line
}

type parser struct {
	source  Source
	budget  int
	skipped func(at, format string, args ...any) // reports what was not read
}

const deepest = 16 // blocks and includes

// file reads a file and what it includes.
func (p *parser) file(name string, depth int) ([]directive, error) {
	if depth > deepest {
		return nil, fmt.Errorf("%s: is included more than %d deep; does it include itself?", name, deepest)
	}
	text, err := p.source.Read(p.budget, name)
	if err != nil {
		return nil, err
	}
	if p.budget -= len(text); p.budget < 0 {
		return nil, fmt.Errorf("%s: the configuration is larger than %d bytes", name, MaxBytes)
	}
	t := &tokens{text: string(text), file: name, line: 1}
	list, err := p.block(t, depth, false)
	if err != nil {
		return nil, err
	}
	return list, nil
}

// block reads directives until the end of the block or file.
func (p *parser) block(t *tokens, depth int, inner bool) (list []directive, err error) {
	if depth > deepest {
		return nil, fmt.Errorf("%s: blocks are nested more than %d deep", t.at(), deepest)
	}
	for {
		word, mark, err := t.next()
		switch {
		case err != nil:
			return nil, err
		case mark == end && inner:
			return nil, fmt.Errorf("%s: a block is not closed; add }", t.at())
		case mark == end, mark == '}' && inner:
			return list, nil
		case mark != 0:
			return nil, fmt.Errorf("%s: unexpected %c", t.at(), mark)
		}
		d := directive{name: word, at: t.at()}
		for mark == 0 {
			if word, mark, err = t.next(); err != nil {
				return nil, err
			} else if mark == 0 {
				d.args = append(d.args, word)
			}
		}
		switch mark {
		case end, '}':
			return nil, fmt.Errorf("%s: %s is not ended; add ;", t.at(), d.name)
		case '{':
			d.isSet = true
			if strings.HasSuffix(d.name, "_by_lua_block") { // not in nginx's syntax
				return nil, fmt.Errorf("%s: %s cannot be read; take it out for the import", d.at, d.name)
			}
			if d.block, err = p.block(t, depth+1, true); err != nil {
				return nil, err
			}
		}
		if d.name != "include" || len(d.args) != 1 {
			list = append(list, d)
			continue
		}
		included, err := p.include(&d, depth)
		if err != nil {
			return nil, err
		}
		list = append(list, included...)
	}
}

// include reads the files that a directive includes. A missing file contributes nothing.
func (p *parser) include(d *directive, depth int) (list []directive, err error) {
	names := []string{d.args[0]}
	if filepath.Base(d.args[0]) == "mime.types" {
		return nil, nil
	}
	if p.source.Glob != nil {
		if names, err = p.source.Glob(d.args[0]); err != nil {
			return nil, fmt.Errorf("%s: include: %w", d.at, err)
		}
	}
	if p.source.Glob == nil || len(names) == 0 && !strings.ContainsAny(d.args[0], "*?[") {
		p.skipped(d.at, "include %s: cannot be read here; what it limits is left out", d.args[0])
		return nil, nil
	}
	for _, name := range names {
		included, err := p.file(name, depth+1)
		if err != nil {
			return nil, err
		}
		list = append(list, included...)
	}
	return list, nil
}

// tokens are the words and marks of a file.
type tokens struct {
	text string
	file string
	line int
}

const end = byte('$') // of the file; no mark is written like this

func (t *tokens) at() string { return fmt.Sprintf("%s:%d", t.file, t.line) }

var errQuote = errors.New("a quote is not closed")

// next returns a word, or one of the marks { } ; or end.
func (t *tokens) next() (word string, mark byte, err error) {
	for t.text != "" {
		switch c := t.text[0]; c {
		case '\n':
			t.line++
			t.text = t.text[1:]
		case ' ', '\t', '\r':
			t.text = t.text[1:]
		case '#':
			_, t.text, _ = strings.Cut(t.text, "\n")
			t.line++
		case '{', '}', ';':
			t.text = t.text[1:]
			return "", c, nil
		case '"', '\'':
			return t.quoted(c)
		default:
			return t.bare(), 0, nil
		}
	}
	return "", end, nil
}

func (t *tokens) quoted(quote byte) (string, byte, error) {
	var word strings.Builder
	for i := 1; i < len(t.text); i++ {
		c := t.text[i]
		switch {
		case c == quote:
			t.text = t.text[i+1:]
			return word.String(), 0, nil
		case c == '\n':
			t.line++
		case c == '\\' && i+1 < len(t.text):
			if i++; t.text[i] != quote && t.text[i] != '\\' {
				word.WriteByte('\\') // of a regular expression
			}
			c = t.text[i]
		}
		word.WriteByte(c)
	}
	return "", 0, fmt.Errorf("%s: %w", t.at(), errQuote)
}

// bare reads a word without quotes; ${name} does not end it.
func (t *tokens) bare() string {
	i, variable := 0, false
	for ; i < len(t.text); i++ {
		c := t.text[i]
		switch {
		case c == '\\' && i+1 < len(t.text):
			i++
			continue
		case variable:
			variable = c != '}'
			continue
		case c == '{' && i > 0 && t.text[i-1] == '$':
			variable = true
			continue
		}
		if strings.IndexByte(" \t\r\n;{}", c) >= 0 {
			break
		}
	}
	word := t.text[:i]
	t.text = t.text[i:]
	return word
}
