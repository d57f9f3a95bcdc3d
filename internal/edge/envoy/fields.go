package envoy

import "strconv"

// Fields is the text of an answer: a body, and then header fields. All of it is written to one
// buffer, and read as strings at the end. Reuse it after Reset.
type Fields struct {
	text   []byte
	body   int // its end in text
	fields []field
}

// field is a part of Fields.text, under a name.
type field struct {
	name       string
	start, end int
}

func (f *Fields) Reset() { f.text, f.body, f.fields = f.text[:0], 0, f.fields[:0] }

// SetBody copies the body, before any field.
func (f *Fields) SetBody(b []byte) {
	f.text = append(f.text, b...)
	f.body = len(f.text)
}

// Body returns the body, until Reset.
func (f *Fields) Body() []byte { return f.text[:f.body] }

func (f *Fields) Add(name string, value []byte) {
	f.text = append(f.text, value...)
	f.end(name, len(f.text)-len(value))
}

func (f *Fields) AddInt(name string, value int64) {
	start := len(f.text)
	f.text = strconv.AppendInt(f.text, value, 10)
	f.end(name, start)
}

func (f *Fields) end(name string, start int) {
	f.fields = append(f.fields, field{name, start, len(f.text)})
}

func (f *Fields) Len() int { return len(f.fields) }

// At returns a field, until Reset.
func (f *Fields) At(i int) (name, value string) {
	at := f.fields[i]
	return at.name, Text(f.text[at.start:at.end])
}
