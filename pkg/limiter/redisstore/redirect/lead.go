package redirect

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

// Numbers is a command of Lead. It embeds go-redis's.
type Numbers struct {
	*redis.IntSliceCmd
	leads bool
	late  *link // has the answer to come
}

// leading is a command that embeds Numbers.
type leading interface{ numbers() *Numbers }

func (n *Numbers) numbers() *Numbers { return n }

// SetErr implements redis.Cmder. go-redis calls it before it closes the connection.
func (n *Numbers) SetErr(err error) {
	if err != nil && n.leads {
		var u *unread
		if errors.As(err, &u) {
			u.link.kept.Store(true)
			n.late = u.link
		}
	}
	n.IntSliceCmd.SetErr(err)
}

// Lead does what Send does, for commands that embed Numbers, and returns by the given time. If
// one exchange on a connection does not settle the commands by then, it returns the rest, for
// another goroutine. go-redis discards a connection whose answer is late, but the rest reads it.
func (s *Sender) Lead(ctx context.Context, client *redis.Client, cmds []redis.Cmder, by time.Time) (rest func()) {
	late := time.Now().Add(client.Options().ReadTimeout)
	for _, cmd := range cmds {
		cmd.(leading).numbers().leads = true
	}
	u, _ := s.spare.Get().(*until)
	u = u.start(by)
	_ = exec(u, client.Pipeline(), cmds, 0)
	if u.timer.Stop() {
		s.spare.Put(u)
	}
	for _, cmd := range cmds {
		cmd.(leading).numbers().leads = false
	}
	if len(failing(cmds, Failure)) == 0 {
		return nil
	}
	return func() {
		first, last := cmds[0], cmds[len(cmds)-1].(leading).numbers()
		switch {
		case last.late != nil:
			if last.late.answer(cmds, late) == nil {
				s.warm(ctx, client)
			}
		case first.Err() == context.DeadlineExceeded: // no connection was open, so nothing was sent
			for _, cmd := range cmds {
				cmd.SetErr(nil)
			}
			_ = s.Send(ctx, client, cmds, 0)
			return
		}
		_ = s.settle(ctx, client, cmds, 0, nil)
	}
}

// warm opens a connection in place of one whose answer was late. Those that lead might never have
// one otherwise: on a slow network, to connect and to ask takes longer than they may.
func (s *Sender) warm(ctx context.Context, client *redis.Client) {
	if s.warming.CompareAndSwap(false, true) {
		go func() {
			defer s.warming.Store(false)
			pipe := client.Pipeline() // these have connections of their own
			pipe.Ping(ctx)
			_, _ = pipe.Exec(ctx) // if it fails, so will the next call
		}()
	}
}

// until is a context that ends at a time. It can be used again if it did not.
type until struct {
	by    time.Time
	ended chan struct{}
	timer *time.Timer
}

func (u *until) start(by time.Time) *until {
	if u != nil {
		u.by = by
		u.timer.Reset(time.Until(by))
		return u
	}
	ended := make(chan struct{})
	return &until{by, ended, time.AfterFunc(time.Until(by), func() { close(ended) })}
}

// Deadline implements context.Context.
func (u *until) Deadline() (time.Time, bool) { return u.by, true }

// Done implements context.Context.
func (u *until) Done() <-chan struct{} { return u.ended }

// Err implements context.Context.
func (u *until) Err() error {
	select {
	case <-u.ended:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// Value implements context.Context.
func (u *until) Value(any) any { return nil }
