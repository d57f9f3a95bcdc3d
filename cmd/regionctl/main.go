// Command regionctl changes and shows the rules of a fleet of edge nodes, region by region.
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/weir-edge/weir/internal/ctl"
	"github.com/weir-edge/weir/internal/ctl/term"
)

func main() {
	// A closed pipe (regionctl … | head) must not end a change halfway: ignore SIGPIPE, so
	// that the write returns an error as for any other file.
	signal.Ignore(syscall.SIGPIPE)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// A second signal ends the program immediately.
	context.AfterFunc(ctx, stop)
	err := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	os.Exit(term.ExitStatus(err))
}

// run prints the error; its kind determines the exit status.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) error {
	return ctl.Run(ctx, args, stdin, stdout, stderr)
}
