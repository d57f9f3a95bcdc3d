package field

import (
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestErrors(t *testing.T) {
	var list Errors
	require.NoError(t, list.Err())
	list.Add("a[0]", "must be %d", 5)
	list.Add("", "is empty")
	require.EqualError(t, list.Err(), "a[0]: must be 5\ndocument: is empty")
	require.EqualError(t, list.Under("x.y"), "x.y.a[0]: must be 5\nx.y: is empty")
	require.EqualError(t, Errors{{Path: "[2].b", Msg: "m"}}.Under("list"), "list[2].b: m")
	list[0].Line = 3
	require.EqualError(t, list.In("f"), "f:3: a[0]: must be 5\nf: is empty")
	require.Empty(t, list[0].File, "the original is unchanged")
	var one *Error
	require.ErrorAs(t, fmt.Errorf("wrapped: %w", list), &one)
	require.Equal(t, "a[0]", one.Path)

	var all Errors
	all.Take("b", nil)
	all.Take("b", errors.Join(list, &Error{Path: "c", Msg: "x"}))
	require.EqualError(t, all, "b.a[0]: must be 5\nb: is empty\nb.c: x")
}

func TestAll(t *testing.T) {
	f := func(err error, want ...string) {
		t.Helper()
		var got []string
		for _, e := range All(err) {
			got = append(got, e.Error())
		}
		require.Equal(t, want, got)
	}
	one := &Error{Path: "a", Msg: "x"}
	f(nil)
	f(one, "a: x")
	f(Errors{one, one}, "a: x", "a: x")
	f(fmt.Errorf("version 3: %w", Errors{one, one}), "a: x", "a: x")
	f(errors.Join(one, io.EOF), "a: x", "document: EOF")
	f(fmt.Errorf("%w and %w", io.EOF, io.ErrClosedPipe), "document: EOF and io: read/write on closed pipe")
	f(io.EOF, "document: EOF")
}

func TestSuggest(t *testing.T) {
	f := func(got, want string, known ...string) {
		t.Helper()
		require.Equal(t, want, SuggestOr(got, known...))
	}
	f("datacentre", "; did you mean datacenter?", "addr", "datacenter")
	f("rolling-windw", "; did you mean rolling_window?", "rolling_window")
	f("xyz", "; use a, b or c", "a", "b", "c")
	f("xyz", "; use a", "a")
	f("xyz", "")
}
