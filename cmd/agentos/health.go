package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/spf13/cobra"
)

// healthCommand lets a container without a shell check itself.
func healthCommand(out stdio, env lookup) *cobra.Command {
	var addr string
	cmd := &cobra.Command{
		Use:     "health",
		Short:   "Ask a server on this machine whether it is alive",
		Example: "  agentos health",
		Args:    takes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !isAddress(addr) {
				return usageError{fmt.Errorf("%s: must be host:port such as 127.0.0.1:8080", givenBy(cmd, env)("addr"))}
			}
			ctx, stop := context.WithTimeout(cmd.Context(), 3*time.Second)
			defer stop()
			status, err := ask(ctx, addr)
			if err != nil {
				return fmt.Errorf("no answer from %s: %w", addr, err)
			}
			if status != http.StatusOK {
				fmt.Fprintf(out.err, "agentos: not healthy: HTTP %d from http://%s/health\n", status, addr)
				return failed{exitFailed}
			}
			_, err = fmt.Fprintln(out.out, "healthy")
			return err
		},
	}
	cmd.Flags().StringVar(&addr, "addr", env.or("AGENTOS_ADDR", "127.0.0.1:8080"), "address of the server (AGENTOS_ADDR)")
	return cmd
}

func ask(ctx context.Context, addr string) (int, error) {
	if host, port, err := net.SplitHostPort(addr); err == nil && (host == "" || host == "0.0.0.0" || host == "::") {
		addr = net.JoinHostPort("127.0.0.1", port)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/health", nil)
	if err != nil {
		return 0, err
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Do(req)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close() //nolint:errcheck // read only
	if _, err := io.Copy(io.Discard, io.LimitReader(res.Body, 1<<16)); err != nil {
		return 0, err
	}
	return res.StatusCode, nil
}
