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
	// A reader that went away (regionctl … | head) must not end a change halfway:
	// writing then fails as it does to any other file.
	signal.Ignore(syscall.SIGPIPE)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// The second signal ends the program at once.
	context.AfterFunc(ctx, stop)
	err := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	os.Exit(term.ExitStatus(err))
}

// run prints what went wrong; the exit status says of which kind it was.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) error {
	return ctl.Run(ctx, args, stdin, stdout, stderr)
}
