// Package accesslog writes a line for each request to a file, in a form that `regionctl
// rules test` reads. It never makes a request wait: lines collect in a bounded buffer, and
// lines that do not fit are dropped and counted.
package accesslog

import (
	"fmt"
	"log/slog"
	"os"
	"sync"
)

// The formats of a line.
const (
	Combined = "combined" // the Combined Log Format of Apache and nginx
	JSON     = "json"     // an object, with the duration and chosen headers
)

// Config says what is logged and where.
type Config struct {
	File        string   `yaml:"file"`          // where the lines go
	Format      string   `yaml:"format"`        // combined or json; absent: combined
	Headers     []string `yaml:"headers"`       // with json: request headers to include
	HashKeyFile string   `yaml:"hash_key_file"` // holds a secret of at least 16 bytes that keys the hashes of values; absent: a new one at each start
}

// Validate reports faults by calling fault with a path below prefix.
func (c *Config) Validate(fault func(path, format string, args ...any)) {
	if c.File == "" {
		fault("file", "must name a file; leave access_log out to log no requests")
	}
	switch c.Format {
	case "", Combined, JSON:
	default:
		fault("format", "must be combined or json (got %q)", c.Format)
	}
	if len(c.Headers) > 0 && c.Format != JSON {
		fault("headers", "need format: json; the combined format has no place for them")
	}
	if _, err := hashKey(c.HashKeyFile); err != nil {
		fault("hash_key_file", "%v", err)
	}
	for i, name := range c.Headers {
		if !ValidHeader(name) {
			fault(fmt.Sprintf("headers[%d]", i), "must be the name of a header (got %q)", name)
		}
	}
}

// room is how many bytes of lines may wait for the disk.
const room = 1 << 20

// Log is an open access log. Its methods may be called concurrently.
type Log struct {
	config   Config
	redactor *Redactor
	log      *slog.Logger
	dropped  func(lines int)

	mu      sync.Mutex
	waiting []byte // whole lines, at most room bytes
	lines   int    // in waiting
	closed  bool

	wake, reopen chan struct{} // each holds one signal
	done         chan struct{}
	failing      bool // the last write failed; used only by the writer
}

// Open opens the file for appending and starts the writer. It calls dropped with the number
// of lines that were lost.
func Open(c Config, log *slog.Logger, dropped func(lines int)) (*Log, error) {
	redactor, err := NewRedactor(c.HashKeyFile, c.Headers)
	if err != nil {
		return nil, fmt.Errorf("access_log.hash_key_file: %w", err)
	}
	file, err := open(c.File)
	if err != nil {
		return nil, err
	}
	l := &Log{
		config: c, redactor: redactor, log: log, dropped: dropped,
		wake: make(chan struct{}, 1), reopen: make(chan struct{}, 1), done: make(chan struct{}),
	}
	go l.write(file)
	return l, nil
}

func open(name string) (*os.File, error) {
	file, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o640)
	if err != nil {
		return nil, fmt.Errorf("access_log.file: %w", err)
	}
	return file, nil
}

// Add queues a line, or drops it if too many wait. It does not retain line.
func (l *Log) Add(line []byte) {
	l.mu.Lock()
	fits := !l.closed && len(l.waiting)+len(line) <= room
	if fits {
		l.waiting = append(l.waiting, line...)
		l.lines++
	}
	l.mu.Unlock()
	if !fits {
		l.dropped(1)
		return
	}
	signal(l.wake)
}

// Reopen closes the file and opens it by its name again, after a rotation.
func (l *Log) Reopen() { signal(l.reopen) }

// Close writes what waits, and closes the file.
func (l *Log) Close() {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	signal(l.wake)
	<-l.done
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// write moves lines to the file until the log is closed.
func (l *Log) write(file *os.File) {
	defer close(l.done)
	defer func() { _ = file.Close() }()
	var spare []byte
	for {
		select {
		case <-l.wake:
		case <-l.reopen:
			if next, err := open(l.config.File); err != nil {
				l.report(err) // keep writing to the old file
			} else {
				_ = file.Close()
				file = next
			}
		}
		l.mu.Lock()
		batch, lines, closed := l.waiting, l.lines, l.closed
		l.waiting, l.lines = spare[:0], 0
		l.mu.Unlock()
		if len(batch) > 0 {
			_, err := file.Write(batch)
			if l.report(err); err != nil {
				l.dropped(lines)
			}
		}
		if spare = batch; closed {
			return
		}
	}
}

// report logs the first of consecutive errors.
func (l *Log) report(err error) {
	if err != nil && !l.failing {
		l.log.Error("access log cannot be written", "error", err)
	}
	l.failing = err != nil
}
