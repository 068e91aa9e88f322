package file

import "context"

// Readers is the number of connections that read.
const Readers = readers

// Exec runs a statement on the writer's connection, to damage or to limit it.
func (s *Store) Exec(ctx context.Context, query string, args ...any) error {
	return s.do(ctx, func(t *txn) error { return t.exec(query, args...) })
}

// Operate runs an operation of the test's own: f may write with exec and look at
// what the transaction has so far with count.
func (s *Store) Operate(ctx context.Context, f func(exec func(query string, args ...any) error, count func(query string) int) error) error {
	return s.do(ctx, func(t *txn) error {
		return f(t.exec, func(query string) (n int) {
			if err := t.one(query).Scan(&n); err != nil {
				return -1
			}
			return n
		})
	})
}

// Plan returns how SQLite would run the list queries, by the name of the filter.
func (s *Store) Plan(ctx context.Context, query string, args ...any) ([]string, error) {
	return read(ctx, s, func(t *txn) ([]string, error) {
		var out []string
		err := t.each("EXPLAIN QUERY PLAN "+query, args, func(from scanner) error {
			var id, parent, unused int
			var detail string
			err := from.Scan(&id, &parent, &unused, &detail)
			out = append(out, detail)
			return err
		})
		return out, err
	})
}

// RunsQuery is the query of a list of runs.
var RunsQuery = runsQuery

// HoldsQuery is the query of a list of holds.
var HoldsQuery = holdsQuery
