package console

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"

	"github.com/weir-edge/weir/internal/console/access"
)

type TokenList struct {
	Tokens []access.Issued `json:"tokens"`
}

// NewToken is what a token is to be.
type NewToken struct {
	Name string `json:"name"`
	access.Right
	Days int `json:"days"` // until it expires
}

// CreatedToken has a new token, which is shown once.
type CreatedToken struct {
	access.Issued
	Token string `json:"token"`
}

func (s *Server) tokens(w http.ResponseWriter, r *http.Request) {
	list, err := s.Access.TokensOf(personOf(r))
	s.replyTo(w, r, err, TokenList{list})
}

func (s *Server) createToken(w http.ResponseWriter, r *http.Request) {
	person := personOf(r)
	if !mayWrite(w, r) {
		return
	}
	const longest = 64 << 10
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, longest))
	var want NewToken
	if err == nil {
		read := json.NewDecoder(bytes.NewReader(text))
		read.DisallowUnknownFields()
		err = read.Decode(&want)
	}
	if err != nil {
		refuse(w, http.StatusBadRequest, "the body must be a JSON object, as {\"name\": \"ci\", \"may\": \"operator\", \"days\": 30}: "+err.Error())
		return
	}
	token, issued, err := s.Access.CreateToken(person, want.Name, want.Right, want.Days)
	if err == nil {
		s.Log.Info("token created", "user", person.Name, "name", issued.Name, "may", issued.Right.String(), "expires", issued.Expires)
	}
	s.replyTo(w, r, err, CreatedToken{issued, token})
}

func (s *Server) revokeToken(w http.ResponseWriter, r *http.Request) {
	person := personOf(r)
	if !mayWrite(w, r) {
		return
	}
	issued, err := s.Access.RevokeToken(person, r.PathValue("name"))
	if err == nil {
		s.Log.Info("token revoked", "user", person.Name, "name", issued.Name, "by", issued.By)
	}
	s.replyTo(w, r, err, issued)
}

// mayWrite refuses a request without its person's token.
func mayWrite(w http.ResponseWriter, r *http.Request) bool {
	if holds(r, personOf(r)) {
		return true
	}
	refuseFor(w, http.StatusForbidden, reasonToken, needsToken)
	return false
}

// replyTo answers with v, or says why Access refused.
func (s *Server) replyTo(w http.ResponseWriter, r *http.Request, err error, v any) {
	if err != nil {
		s.denied(w, r, err)
		return
	}
	reply(w, http.StatusOK, v)
}
