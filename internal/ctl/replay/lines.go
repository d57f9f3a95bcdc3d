package replay

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

const (
	// longestLine far exceeds the request header that a server accepts.
	longestLine = 256 << 10
	// A batch ends at the first of these bounds.
	batchLines = 256
	batchBytes = 256 << 10
	// batchesAhead is how far reading may be ahead of deciding.
	batchesAhead = 4
	// maxSkips is how many lines that cannot be read are shown.
	maxSkips = 10
)

// batch is a run of lines. It is recycled: its entries live until the next fill.
type batch struct {
	entries []entry
	n       int // entries in use
	text    arena

	read    int64 // lines of this batch that are not blank
	skipped int64
	skips   []Skip

	// The state of the input behind the batch's last line.
	bytes, lines int64
	err          error // io.EOF at the end
}

// arena holds the text of a batch's entries.
type arena struct{ buf []byte }

// keep returns a copy of b that lives as long as the batch.
func (a *arena) keep(b []byte) []byte {
	start := len(a.buf)
	a.buf = append(a.buf, b...)
	return a.since(start)
}

// since returns what was appended to buf since it had that length.
func (a *arena) since(start int) []byte { return a.buf[start:len(a.buf):len(a.buf)] }

// each plays the batches of the log r, and reports progress to c.Progress. When ctx ends,
// each returns immediately; a hanging Read is left to finish separately.
func each(ctx context.Context, c *Config, r io.Reader, play func(*batch)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	batches, free := make(chan *batch), make(chan *batch, batchesAhead)
	go produce(ctx, c, r, batches, free)
	var shown time.Time
	for {
		var b *batch
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case b = <-batches:
		}
		play(b)
		if c.Progress != nil && (b.err != nil || time.Since(shown) >= progressEvery) {
			shown = time.Now()
			c.Progress(b.bytes, b.lines)
		}
		if b.err == io.EOF {
			return nil
		} else if b.err != nil {
			return fmt.Errorf("read the log after line %d: %w", b.lines, b.err)
		}
		free <- b // never waits: there is room for all
	}
}

// produce reads batches until the input or ctx ends, slightly ahead of the consumer.
func produce(ctx context.Context, c *Config, r io.Reader, out chan<- *batch, free chan *batch) {
	for range batchesAhead {
		free <- &batch{entries: make([]entry, batchLines)}
	}
	in := newInput(r)
	p := &parser{config: c}
	for {
		var b *batch
		select {
		case <-ctx.Done():
			return
		case b = <-free:
		}
		in.fill(b, p)
		select {
		case <-ctx.Done():
			return
		case out <- b:
		}
		if b.err != nil {
			return
		}
	}
}

// input reads lines.
type input struct {
	source  counter
	reader  *bufio.Reader
	started bool
	lines   int64
}

// counter counts the bytes read through it.
type counter struct {
	io.Reader
	n int64
}

func (c *counter) Read(b []byte) (int, error) {
	n, err := c.Reader.Read(b)
	c.n += int64(n)
	return n, err
}

func newInput(r io.Reader) *input {
	in := &input{source: counter{Reader: r}}
	in.reader = bufio.NewReaderSize(&in.source, longestLine)
	return in
}

// start checks the first bytes: a compressed log is decompressed.
func (in *input) start() error {
	in.started = true
	if magic, _ := in.reader.Peek(2); string(magic) == "\x1f\x8b" {
		z, err := gzip.NewReader(in.reader)
		if err != nil {
			return err
		}
		in.reader = bufio.NewReaderSize(z, longestLine)
	}
	if mark, _ := in.reader.Peek(3); string(mark) == "\xef\xbb\xbf" { // UTF-8's byte order mark
		_, _ = in.reader.Discard(len(mark))
	}
	return nil
}

var errTooLong = fmt.Errorf("is longer than %d bytes", longestLine)

// next returns the next line without its end. The error errTooLong means that the line was
// dropped; any other ends the input. A last line may come with io.EOF.
func (in *input) next() ([]byte, error) {
	line, err := in.reader.ReadSlice('\n')
	if len(line) > 0 {
		in.lines++
	}
	if errors.Is(err, bufio.ErrBufferFull) {
		for errors.Is(err, bufio.ErrBufferFull) {
			_, err = in.reader.ReadSlice('\n')
		}
		if err != nil && err != io.EOF {
			return nil, err
		}
		return nil, errTooLong
	}
	return line, err
}

// fill reads the next batch.
func (in *input) fill(b *batch, p *parser) {
	b.n, b.read, b.skipped, b.skips, b.err = 0, 0, 0, b.skips[:0], nil
	b.text.buf = b.text.buf[:0]
	if !in.started {
		b.err = in.start()
	}
	for before := in.lines; b.err == nil && in.lines-before < batchLines && len(b.text.buf) < batchBytes; {
		line, err := in.next()
		if err != nil && err != errTooLong {
			b.err = err
			if err != io.EOF { // this text is the beginning of a truncated line
				break
			}
		}
		if line = bytes.TrimSpace(line); len(line) == 0 && err != errTooLong {
			continue
		}
		b.read++
		e := &b.entries[b.n]
		if err != errTooLong {
			err = p.parse(b.text.keep(line), e, &b.text)
		}
		if err != nil {
			b.skip(in.lines, err)
			continue
		}
		e.line = in.lines
		b.n++
	}
	b.bytes, b.lines = in.source.n, in.lines
}

// count adds the lines to those of a report.
func (b *batch) count(lines, skipped *int64, skips *[]Skip) {
	*lines, *skipped = *lines+b.read, *skipped+b.skipped
	*skips = append(*skips, b.skips[:min(maxSkips-len(*skips), len(b.skips))]...)
}

func (b *batch) skip(line int64, why error) {
	b.skipped++
	if len(b.skips) < maxSkips {
		b.skips = append(b.skips, Skip{Line: line, Reason: why.Error()})
	}
}
