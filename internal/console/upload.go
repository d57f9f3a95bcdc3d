package console

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"slices"
	"time"
)

const (
	// uploadsAtOnce bounds the concurrent uploads.
	uploadsAtOnce = 2
	// uploadTime bounds the duration of an upload, and mostUpload its size.
	uploadTime = 15 * time.Minute
	mostUpload = 8 << 30
	// mostParts bounds the fields before the log.
	mostParts = 100
)

// upload performs an operation that reads a log while it arrives. Nothing is stored; a sender that
// is faster than the operation waits.
func (s *Server) upload(w http.ResponseWriter, r *http.Request, o *Operation) {
	select {
	case s.uploads <- struct{}{}:
		defer func() { <-s.uploads }()
	default:
		w.Header().Set("Retry-After", "10")
		refuse(w, http.StatusServiceUnavailable, fmt.Sprintf("%d other logs are being read; try again when they are done", uploadsAtOnce))
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), uploadTime)
	defer cancel()
	to := http.NewResponseController(w)
	r.Body = http.MaxBytesReader(w, &patient{body: r.Body, to: to, end: time.Now().Add(uploadTime)}, mostUpload)
	form, err := r.MultipartReader()
	if err != nil {
		refuse(w, http.StatusBadRequest, "Content-Type: must be multipart/form-data, with the document and, last, the log")
		return
	}
	v, document, log, err := o.readForm(form)
	if err == nil {
		err = o.check(v)
	}
	if err != nil {
		refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	var notes []string
	c := &Call{Operation: o, User: personOf(r).Name, values: v, Document: document, Log: log, Note: func(line string) { notes = append(notes, line) }}
	found, err := s.Do(ctx, c)
	// A browser reads no answer while it sends.
	_, _ = io.Copy(io.Discard, log)
	// Where deadlines are unsupported, as in tests, writes are unbounded.
	_ = to.SetReadDeadline(time.Time{})
	_ = to.SetWriteDeadline(time.Now().Add(bodyTime))
	answer(w, c, found, notes, err)
}

// patient is a body whose reads time out when it stops arriving.
type patient struct {
	body io.ReadCloser
	to   *http.ResponseController
	end  time.Time
	set  time.Time
}

func (p *patient) Read(b []byte) (int, error) {
	if now := time.Now(); now.Sub(p.set) > time.Second {
		until := now.Add(bodyTime)
		if p.set = now; until.After(p.end) {
			until = p.end
		}
		_ = p.to.SetReadDeadline(until) // unsupported in tests
	}
	return p.body.Read(b)
}

func (p *patient) Close() error { return p.body.Close() }

// readForm reads the fields before the log, which is the last part.
func (o *Operation) readForm(form *multipart.Reader) (v values, document string, log io.Reader, err error) {
	v = values{}
	known := false
	for range mostParts {
		part, err := form.NextPart()
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = errors.New("log: is missing; it is the last part of the form")
			}
			return nil, "", nil, err
		}
		name := part.FormName()
		if name == "log" {
			if !known {
				return nil, "", nil, errors.New("document: is missing; it must precede the log")
			}
			return v, document, part, nil
		}
		most := mostBody
		i := slices.IndexFunc(o.Inputs, func(in Input) bool { return in.Name == name })
		switch {
		case name == "document":
			known = true
		case i < 0:
			return nil, "", nil, o.unknown(name)
		default:
			most = 2000 // check has tighter bounds
		}
		text, err := io.ReadAll(io.LimitReader(part, int64(most)+1))
		if err != nil {
			return nil, "", nil, err
		}
		switch {
		case len(text) > most:
			return nil, "", nil, fmt.Errorf("%s: must be at most %d bytes", name, most)
		case name == "document":
			document = string(text)
		case len(text) > 0:
			v[name] = append(v[name], string(text))
		}
	}
	return nil, "", nil, fmt.Errorf("there must be at most %d parts", mostParts)
}
