package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"agentos/api"
	"agentos/api/auth"
	"agentos/api/client"
	"agentos/audit"
	"agentos/internal/clock"
	"agentos/internal/problem"
	"agentos/internal/secrets"
	"agentos/internal/visible"
)

func keysCommand(io stdio, env lookup) *cobra.Command {
	k := &keysFlags{remote: &remote{stdio: io, env: env}}
	cmd := remoteGroup(k.remote, "keys", "Make, list and revoke API keys", keysCreate(k), keysList(k), keysRevoke(k))
	cmd.Long += `

As soon as there is a key, every request needs one, on every server of the store. The first
is made on a server that listens on loopback, or with --store straight in the store: while no
server works with a store file, at any time in Redis.`
	f := cmd.PersistentFlags()
	f.StringVar(&k.settings.store, "store", "", "work on this store instead of asking a server: file:PATH, redis://...")
	f.IntVar(&k.settings.partitions, "partitions", number(env, "AGENTOS_PARTITIONS", 1), "with --store: as of the servers (AGENTOS_PARTITIONS)")
	return cmd
}

// keysFlags are the flags that the commands about keys share.
type keysFlags struct {
	*remote
	settings settings
}

// keyWork is what these commands do, with a server or a store.
type keyWork interface {
	create(ctx context.Context, k api.CreateKey) (api.CreatedKey, error)
	list(ctx context.Context) ([]api.Key, error)
	revoke(ctx context.Context, id string, force bool) (api.Key, error)
}

// run makes the RunE of a command about keys.
func (k *keysFlags) run(do func(ctx context.Context, w keyWork, args []string) error) func(*cobra.Command, []string) error {
	asking := k.remote.run(func(ctx context.Context, c *client.Client, args []string) error {
		return do(ctx, onServer{c: c, env: k.environment}, args)
	})
	return func(cmd *cobra.Command, args []string) error {
		if k.settings.store == "" {
			return asking(cmd, args)
		}
		if path, isFile := strings.CutPrefix(k.settings.store, "file:"); isFile && cmd.Name() != "create" {
			// Opening it would make one that is not there.
			if _, err := os.Stat(path); err != nil {
				return usageError{problem.Wrap(err, problem.InvalidSettings, "the store file %s cannot be opened: %v", path, err)}
			}
		}
		return k.withStore(cmd.Context(), func(w keyWork) error { return do(cmd.Context(), w, args) })
	}
}

// withStore opens the store for one piece of work.
func (k *keysFlags) withStore(ctx context.Context, do func(keyWork) error) (err error) {
	s := k.settings
	s.logFormat, s.logLevel = "text", "error"
	switch {
	case s.partitions < 1:
		return usageError{problem.New(problem.InvalidSettings, "partitions must be a number of at least 1")}
	case s.store == "file::memory:", s.store == "file:", strings.HasPrefix(s.store, "memory:"):
		return usageError{problem.New(problem.InvalidSettings, "a store in memory ends with its process; a key in it would let nobody in")}
	case k.environment != environment:
		return problem.New(problem.EnvNotFound, "no environment %q; there is %q", k.environment, environment)
	}
	log, err := newLog(s, k.err, secrets.New(nil))
	if err != nil {
		return err
	}
	opened, err := openStore(ctx, s, log, clock.System{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, opened.Close()) }()
	keys, err := newKeyring(s, opened, audit.NewChain(opened, environment).Append, log)
	if err != nil {
		return err
	}
	return do(inStore{keys: keys})
}

// onServer works on the keys of a server.
type onServer struct {
	c   *client.Client
	env string
}

func (w onServer) create(ctx context.Context, k api.CreateKey) (api.CreatedKey, error) {
	return w.c.CreateKey(ctx, w.env, k)
}
func (w onServer) list(ctx context.Context) ([]api.Key, error) { return w.c.Keys(ctx, w.env) }
func (w onServer) revoke(ctx context.Context, id string, force bool) (api.Key, error) {
	return w.c.RevokeKey(ctx, w.env, id, force)
}

// inStore works on the keys of a store, in the name of whoever has it.
type inStore struct{ keys *auth.Keyring }

func (inStore) by() auth.Actor { return auth.Actor{Name: auth.Local().Name} }

func (w inStore) create(ctx context.Context, k api.CreateKey) (api.CreatedKey, error) {
	return w.keys.Create(ctx, w.by(), k)
}
func (w inStore) list(ctx context.Context) ([]api.Key, error) { return w.keys.List(ctx) }
func (w inStore) revoke(ctx context.Context, id string, force bool) (api.Key, error) {
	return w.keys.Revoke(ctx, w.by(), id, force)
}

func keysCreate(k *keysFlags) *cobra.Command {
	var c api.CreateKey
	cmd := &cobra.Command{
		Use:   "create",
		Short: "Make an API key and print its secret, once",
		Long: `Make an API key. Its secret is printed to standard output, alone, and kept nowhere: what it
is about goes to standard error.

Roles: viewer reads; runner starts and cancels runs; reviewer decides holds; admin makes keys,
pauses agents, switches tools off, and may do all of that. Groups are words of your own, which
rules name among the roles of reviewers and in conditions. The first key needs the role admin.`,
		Example: "  agentos keys create --name anna --role admin\n" +
			"  export AGENTOS_API_KEY=$(agentos keys create --store file:.agentos/agentos.db --name anna --role admin)\n" +
			"  agentos keys create --name shop-backend --role runner --expires 2160h\n" +
			"  agentos keys create --name bob --role reviewer --group finance",
		Args: takes(),
	}
	create := k.run(func(ctx context.Context, w keyWork, _ []string) error {
		made, err := w.create(ctx, c)
		if err != nil {
			return err
		}
		return k.showCreated(made)
	})
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case c.Name == "":
			return usage(cmd, "--name is missing")
		case len(c.Roles) == 0:
			return usage(cmd, "--role is missing")
		}
		return create(cmd, args)
	}
	f := cmd.Flags()
	f.StringVar(&c.Name, "name", "", "who acts with the key: the requester of runs, the decider of holds; required")
	f.StringSliceVar(&c.Roles, "role", nil, "viewer, runner, reviewer or admin; repeatable, required")
	f.StringSliceVar(&c.Groups, "group", nil, "a group of the person; repeatable")
	f.StringVar(&c.ExpiresIn, "expires", "", "a duration such as 2160h after which the key ends; never by default")
	return cmd
}

func (k *keysFlags) showCreated(made api.CreatedKey) error {
	until := ""
	if made.Key.ExpiresAt != nil {
		until = ", until " + stamp(made.Key.ExpiresAt.Time)
	}
	fmt.Fprintf(k.err, "agentos: key %s of %s: %s%s; its secret is not shown again\n", visible.Text(made.Key.ID), visible.Text(made.Key.Name),
		visible.Text(strings.Join(append(made.Key.Roles, made.Key.Groups...), ", ")), until)
	if k.json {
		return printJSON(k.out, made)
	}
	_, err := fmt.Fprintln(k.out, made.Secret)
	return err
}

func keysList(k *keysFlags) *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Short:   "List the API keys, oldest first",
		Example: "  agentos keys list",
		Args:    takes(),
		RunE: k.run(func(ctx context.Context, w keyWork, _ []string) error {
			keys, err := w.list(ctx)
			if err != nil {
				return err
			}
			if k.json {
				return printJSON(k.out, api.KeyList{Keys: keys})
			}
			rows := [][]string{{"KEY", "STATUS", "NAME", "ROLES", "GROUPS", "CREATED", "BY", "ENDS"}}
			for _, key := range keys {
				ends := "-"
				switch {
				case key.RevokedAt != nil:
					ends = stamp(key.RevokedAt.Time)
				case key.ExpiresAt != nil:
					ends = stamp(key.ExpiresAt.Time)
				}
				rows = append(rows, []string{
					key.ID, key.Status, key.Name, strings.Join(key.Roles, ","), orDash(strings.Join(key.Groups, ",")),
					stamp(key.CreatedAt.Time), key.CreatedBy, ends,
				})
			}
			return printTable(k.out, rows)
		}),
	}
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

func keysRevoke(k *keysFlags) *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use:   "revoke KEY",
		Short: "Revoke an API key: it counts no more, on every server of the store",
		Long: `Revoke an API key. Within about a second it counts no more on any server of the store, and
streams that were opened with it end. Revoking it again changes nothing.

The last key with the role admin is revoked only with --force. Then agentos keys create
--store makes a new one; the servers need a credential all the same.`,
		Example: "  agentos keys revoke kab2cd3ef4gh5ij6",
		Args:    takes("KEY"),
		RunE: k.run(func(ctx context.Context, w keyWork, args []string) error {
			key, err := w.revoke(ctx, args[0], force)
			if err != nil {
				return err
			}
			if k.json {
				return printJSON(k.out, key)
			}
			_, err = fmt.Fprintf(k.out, "%s of %s: revoked at %s by %s\n", visible.Text(key.ID), visible.Text(key.Name), stamp(key.RevokedAt.Time), visible.Text(key.RevokedBy))
			return err
		}),
	}
	cmd.Flags().BoolVar(&force, "force", false, "revoke the last admin key too")
	return cmd
}
