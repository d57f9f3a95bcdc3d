package main

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/weir-edge/weir/internal/edge"
	"github.com/weir-edge/weir/internal/edge/config"
	"github.com/weir-edge/weir/tools/internal/overload"
)

// serveEdge runs a node that sheds by the published law, which configurations cannot select.
func serveEdge(ctx context.Context, file string) error {
	c, err := config.Load(file)
	if err != nil {
		return err
	}
	c.Shedder.Custom = overload.Published
	node, err := edge.New(c, "", slog.New(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: c.LogLevel()})))
	if err != nil {
		return err
	}
	reload := make(chan os.Signal, 1)
	signal.Notify(reload, syscall.SIGHUP)
	return node.Run(ctx, reload, nil)
}
