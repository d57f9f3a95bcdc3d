package rls

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A caller that gives up sent nothing wrong.
func TestCanceledIsNotInvalid(t *testing.T) {
	var outcome Outcome
	s := &Service{Done: func(o Outcome, _ time.Duration) { outcome = o }}
	torn := errors.New("unexpected EOF")
	ctx, cancel := context.WithCancel(t.Context())
	f := func(want Outcome) {
		t.Helper()
		_, err := s.handle(ctx, func(any) error { return torn })
		require.ErrorIs(t, err, torn)
		require.Equal(t, Outcomes[want], Outcomes[outcome])
	}
	f(Invalid)
	cancel()
	f(Canceled)
}
