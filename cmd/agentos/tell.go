package main

import (
	"context"
	"errors"
	"fmt"
	"os/user"
	"sync"

	"agentos/audit"
	"agentos/internal/clock"
	"agentos/internal/ids"
	"agentos/internal/rawjson"
	"agentos/notify"
	"agentos/runtime/store"
)

// tell begins to tell others of runs and returns what ends that, once every
// transition is in the store.
func (p *parts) tell(ctx context.Context) (stop func()) {
	ctx, end := context.WithCancel(ctx)
	var telling sync.WaitGroup
	telling.Go(func() { p.teller.Work(ctx) })
	return func() {
		end()
		telling.Wait()
	}
}

// newTeller makes what tells the audit of runs.
func (p *parts) newTeller() (err error) {
	p.teller, err = notify.New(notify.Config{
		Store: p.store, Clock: clock.System{}, Log: p.log, Targets: []notify.Target{&notify.Audit{Chain: p.audit, Log: p.log}},
	})
	return err
}

// policyDocument is where the store keeps by which policy the agents were last
// judged, as digests by agent.
const policyDocument = "policy"

// policyChange is the detail of policy.loaded.
type policyChange struct {
	// Manifest is the digest of the agent's manifest, Operator that of the
	// operator's rules; the other one is "".
	Manifest string `json:"manifest,omitempty"`
	Operator string `json:"operator,omitempty"`
	Before   string `json:"before,omitempty"`
}

// operatorRules is the name of the operator's rules among the agents, whose names
// are not empty.
const operatorRules = ""

// recordPolicy has the audit tell of every agent whose manifest is not the one that
// a server has loaded before.
func (p *parts) recordPolicy(ctx context.Context) error {
	for {
		d, err := p.store.Document(ctx, environment, policyDocument)
		if err != nil {
			return fmt.Errorf("read the policies of the environment: %w", err)
		}
		known := map[string]string{}
		if d.Version > 0 {
			if err := rawjson.Unmarshal(d.Text, &known); err != nil {
				return fmt.Errorf("read the policies of the environment: %w", err)
			}
		}
		acts, err := p.newPolicies(known)
		if err != nil || len(acts) == 0 {
			return err
		}
		if err := p.audit.Append(ctx, acts...); err != nil {
			return err
		}
		text, err := rawjson.Marshal(known)
		if err != nil {
			return err
		}
		err = p.store.SetDocument(ctx, environment, policyDocument, store.Document{Version: d.Version + 1, Text: text})
		if !errors.Is(err, store.ErrConflict) {
			return err
		}
	}
}

// newPolicies returns what is to be told of agents whose manifest is not the known
// one, and of other rules of the operator. They are the known ones then.
func (p *parts) newPolicies(known map[string]string) ([]audit.Keyed, error) {
	var acts []audit.Keyed
	load := func(name, digest string, change policyChange) error {
		if known[name] == digest {
			return nil
		}
		change.Before = known[name]
		detail, err := rawjson.Marshal(change)
		if err != nil {
			return err
		}
		acts = append(acts, act(audit.Entry{Event: audit.PolicyLoaded, Agent: name, Detail: detail}))
		known[name] = digest
		return nil
	}
	operator := p.platform.Policy.Digest
	if err := load(operatorRules, operator, policyChange{Operator: operator}); err != nil {
		return nil, err
	}
	for _, a := range p.agents {
		digest := a.Manifest.Digest
		if err := load(a.Manifest.Name, digest, policyChange{Manifest: digest}); err != nil {
			return nil, err
		}
	}
	return acts, nil
}

// act is an entry about something that a person does, or has done, at this machine.
func act(e audit.Entry) audit.Keyed {
	e.At, e.By = clock.System{}.Now().UTC(), "unknown"
	if u, err := user.Current(); err == nil {
		e.By = u.Username
	}
	return audit.Keyed{Key: string(e.Event) + "/" + ids.Random{}.Token(), Entry: e}
}

// recordRepair has the audit tell of a repair before it is made.
func recordRepair(ctx context.Context, s audit.Store) error {
	detail, err := rawjson.Marshal(map[string]string{"program": "agentos " + version()})
	if err != nil {
		return err
	}
	e := act(audit.Entry{Event: audit.Repaired, Detail: detail})
	if err := audit.NewChain(s, environment).Append(ctx, e); err != nil {
		return fmt.Errorf("the repair cannot be recorded, and is not made: %w", err)
	}
	return nil
}
