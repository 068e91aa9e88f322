package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"agentos/gateway/mock"
	"agentos/internal/clock"
	"agentos/internal/problem"
)

// mockModelCommand serves the mock model to any OpenAI client.
func mockModelCommand(std stdio) *cobra.Command {
	var addr string
	cmd := &cobra.Command{
		Use:   "mock-model",
		Short: "Serve the mock model to any OpenAI client",
		Long: `Serve the mock model over the OpenAI API, without a key.

It answers what the last user message tells it to: call:<tool> {json}, say:<text>,
raw:<json>, fail:<status>, slow:<duration>; "then" stands between two answers.
Anything else it repeats.`,
		Example: `  agentos mock-model &
  OPENAI_BASE_URL=http://127.0.0.1:8081/v1 OPENAI_API_KEY=unused agentos serve`,
		Args: takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !isAddress(addr) {
				return usage(cmd, "--addr %.100s: must be host:port such as 127.0.0.1:8081", addr)
			}
			return serveMock(cmd.Context(), std, addr)
		},
	}
	cmd.Flags().StringVar(&addr, "addr", "127.0.0.1:8081", "address to listen on")
	return cmd
}

// stopTime is how long answers under way may take after a stop signal.
const stopTime = 5 * time.Second

func serveMock(ctx context.Context, std stdio, addr string) error {
	provider, err := mock.New(mock.Config{Clock: clock.System{}})
	if err != nil {
		return err
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if err != nil {
		return problem.Wrap(err, problem.InvalidSettings, "cannot listen on %s: %v", addr, err)
	}
	fmt.Fprintf(std.err, "agentos: mock model on http://%s/v1\n", listener.Addr())
	srv := &http.Server{Handler: mock.Handler(provider), ReadHeaderTimeout: 10 * time.Second}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(listener) }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	stopping, end := context.WithTimeout(context.WithoutCancel(ctx), stopTime)
	defer end()
	err = srv.Shutdown(stopping)
	if errors.Is(err, context.DeadlineExceeded) {
		err = srv.Close()
	}
	if served := <-served; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}
