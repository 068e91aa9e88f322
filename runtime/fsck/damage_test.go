package fsck_test

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"agentos/internal/clock"
	"agentos/internal/testenv"
	"agentos/runtime/fsck"
	"agentos/runtime/store"
	"agentos/runtime/store/file"
	"agentos/runtime/store/redis"
	"agentos/runtime/store/storetest"
)

// breach is a finding without its message.
type breach struct {
	code      store.FindingCode
	run, hold string
	repaired  bool
}

// check runs fsck and returns what it found.
func check(tb testing.TB, s store.Inspector, repair bool) []breach {
	tb.Helper()
	var out []breach
	sum, err := fsck.Run(tb.Context(), fsck.Options{Store: s, Clock: clock.System{}, Repair: repair, Report: func(f store.Finding) error {
		tb.Logf("%s %s %s %s (repaired %t)", f.Code, f.RunID, f.HoldID, f.Message, f.Repaired)
		out = append(out, breach{f.Code, f.RunID, f.HoldID, f.Repaired})
		return nil
	}})
	if err != nil {
		tb.Fatal(err)
	}
	repaired := 0
	for _, b := range out {
		if b.repaired {
			repaired++
		}
	}
	if sum.Findings != len(out) || sum.Repaired != repaired || sum.Clean() != (len(out) == repaired) {
		tb.Errorf("the summary is %+v for %d findings, %d repaired", sum, len(out), repaired)
	}
	return out
}

// damage is one way to damage a world, and what must be found then.
type damage struct {
	name string
	want []breach
	// redisToo is what only Redis tells besides.
	redisToo []breach
	// file are SQL statements, redis are scripts that answer with the number of
	// changes; {name} stands for an id. A driver that cannot have the damage has
	// none.
	file  []string
	redis []string
}

// fill replaces the names in a statement.
func fill(text string) string {
	return replace(text, "{queued}", queued, "{running}", running, "{held}", held, "{completed}", completed, "{cancelled}", cancelled,
		"{failed}", failed, "{parked}", parked, "{hold}", holdOf(held), "{done}", holdOf(completed), "{keyed}", keyed, "{key}", theKey, "{gone}", runID(99), "{gonehold}", holdOf(runID(99)))
}

func found(code store.FindingCode, run, hold string) []breach {
	return []breach{{code: code, run: run, hold: hold}}
}

var gone = runID(99)

// at is the id of entry n of a run.
func at(run, n string) string { return "(SELECT n << 20 FROM runs WHERE id = '" + run + "') + " + n }

func damages() []damage {
	return slices.Concat(dueDamages(), listDamages(), journalDamages(), holdDamages(), orphanDamages())
}

func dueDamages() []damage {
	return []damage{
		{
			name: "a queued run is not due", want: found(store.DueMissing, queued, ""),
			file: []string{"UPDATE runs SET due = NULL WHERE id = '{queued}'"},
			redis: []string{
				`return call('ZREM', due, '{queued}')`,
			},
		},
		{
			name: "a leased run is not due", want: found(store.DueMissing, running, ""),
			file: []string{"UPDATE runs SET due = NULL WHERE id = '{running}'"},
			redis: []string{
				`return call('ZREM', due, '{running}')`,
			},
		},
		{
			name: "a held run is not due", want: found(store.DueMissing, held, ""),
			file: []string{"UPDATE runs SET due = NULL WHERE id = '{held}'"},
			redis: []string{
				`return call('ZREM', due, '{held}')`,
			},
		},
		{
			name: "a held run is due before its hold expires", want: found(store.DueTime, held, holdOf(held)),
			file: []string{"UPDATE runs SET due = due - 1 WHERE id = '{held}'"},
			redis: []string{
				`return call('ZADD', due, 'CH', call('ZSCORE', due, '{held}') - 1, '{held}')`,
			},
		},
		{
			name: "a finished run is due", want: found(store.DueStray, completed, ""),
			file: []string{"UPDATE runs SET due = 1 WHERE id = '{completed}'"},
			redis: []string{
				`return call('ZADD', due, 1, '{completed}')`,
			},
		},
		{
			name: "a finished run is leased", want: found(store.LeaseStray, completed, ""),
			file: []string{"UPDATE runs SET leased = 1 WHERE id = '{completed}'"},
			redis: []string{
				`return change('{completed}', 5, '99999')`,
			},
		},
	}
}

func listDamages() []damage {
	return []damage{
		{
			name: "a hold is listed for another environment", want: found(store.HoldListStray, held, holdOf(held)),
			file: []string{"UPDATE holds SET env = 'test' WHERE id = '{hold}'"},
		},
		{
			name: "a hold is listed for another agent", want: found(store.HoldListStray, held, holdOf(held)),
			file: []string{"UPDATE holds SET agent = 'cook' WHERE id = '{hold}'"},
		},
		{
			name: "a hold is numbered to another run", want: found(store.HoldListStray, held, holdOf(held)),
			file: []string{"UPDATE holds SET run = (SELECT n FROM runs WHERE id = '{queued}') WHERE id = '{hold}'"},
		},
		{
			name: "a hold is numbered to no run", want: found(store.HoldListStray, held, holdOf(held)),
			file: []string{"UPDATE holds SET run = 12345 WHERE id = '{hold}'"},
		},
		{
			name: "an index lacks rows of its table", want: found(store.FileIndex, "", ""),
			file: []string{
				"PRAGMA writable_schema = ON",
				"UPDATE sqlite_schema SET sql = replace(sql, 'session <> ''''', 'session = ''nobody''') WHERE name = 'runs_session'",
				"PRAGMA writable_schema = RESET",
				"REINDEX runs_session",
				"PRAGMA writable_schema = ON",
				"UPDATE sqlite_schema SET sql = replace(sql, 'session = ''nobody''', 'session <> ''''') WHERE name = 'runs_session'",
				"PRAGMA writable_schema = RESET",
			},
		},
	}
}

func journalDamages() []damage {
	return []damage{
		{
			name: "the last entry is missing", want: found(store.JournalIncomplete, held, ""),
			file: []string{"DELETE FROM entries WHERE id = " + at("{held}", "3")},
			redis: []string{
				`return call('HDEL', base .. 'r:{held}', '3')`,
			},
		},
		{
			name: "an entry in the middle is missing", want: found(store.JournalIncomplete, completed, ""),
			file: []string{"DELETE FROM entries WHERE id = " + at("{completed}", "2")},
			redis: []string{
				`return call('HDEL', base .. 'r:{completed}', '2')`,
			},
		},
		{
			name: "all entries are missing", want: found(store.JournalIncomplete, queued, ""),
			file: []string{"DELETE FROM entries WHERE id = " + at("{queued}", "1")},
			redis: []string{
				`return call('HDEL', base .. 'r:{queued}', '1')`,
			},
		},
		{
			name: "the record counts fewer entries", want: found(store.JournalIncomplete, held, ""),
			file: []string{"UPDATE runs SET seq = seq - 1 WHERE id = '{held}'"},
		},
		{
			name: "the record counts none", want: found(store.RecordDamaged, queued, ""),
			file: []string{"UPDATE runs SET seq = 0 WHERE id = '{queued}'"},
			redis: []string{
				`return change('{queued}', 2, '0')`,
			},
		},
		{
			name: "an entry is of another type", want: found(store.JournalInvalid, completed, ""),
			file: []string{"UPDATE entries SET type = 'run.completed' WHERE id = " + at("{completed}", "3")},
			redis: []string{
				`return edit('{completed}', '3', ' %S+ ', ' run.completed ')`,
			},
		},
		{
			name: "an entry is no JSON", want: found(store.JournalInvalid, held, ""),
			file: []string{"UPDATE entries SET data = x'7b' WHERE id = " + at("{held}", "2")},
			redis: []string{
				`return edit('{held}', '2', '^(%S+ %S+ ).*$', '%1{')`,
			},
		},
		{
			name: "a finished run is recorded as running",
			want: []breach{{code: store.StatusDiffers, run: completed}, {code: store.DueMissing, run: completed}},
			file: []string{"UPDATE runs SET status = 'running' WHERE id = '{completed}'"},
			redis: []string{
				`call('ZREM', base .. 'runs:prod:completed', '{completed}') call('ZADD', base .. 'runs:prod:running', call('ZSCORE', base .. 'runs:prod', '{completed}'), '{completed}') return change('{completed}', 1, 'running')`,
			},
			redisToo: []breach{{code: store.ExpiryStray, run: completed}, {code: store.RetireStray, run: completed}},
		},
		{
			name: "an unfinished run is recorded as completed", want: found(store.StatusDiffers, parked, ""),
			file: []string{"UPDATE runs SET status = 'completed', due = NULL WHERE id = '{parked}'"},
			redis: []string{
				`call('ZREM', base .. 'runs:prod:running', '{parked}') call('ZADD', base .. 'runs:prod:completed', call('ZSCORE', base .. 'runs:prod', '{parked}'), '{parked}') call('ZREM', due, '{parked}') return change('{parked}', 1, 'completed')`,
			},
			redisToo: []breach{{code: store.ExpiryMissing, run: parked}},
		},
		{
			name: "the status is none", want: found(store.RecordDamaged, parked, ""),
			file: []string{"UPDATE runs SET status = 'sleeping' WHERE id = '{parked}'"},
			redis: []string{
				`call('ZREM', base .. 'runs:prod:running', '{parked}') return change('{parked}', 1, 'sleeping')`,
			},
		},
		{
			name: "a message has a call that nobody answered", want: found(store.HistoryInvalid, parked, ""),
			file: []string{`UPDATE entries SET data = CAST(replace(CAST(data AS TEXT), '"tool_calls":[', '"tool_calls":[{"id":"p0"},') AS BLOB) WHERE id = ` + at("{parked}", "2")},
			redis: []string{
				`return edit('{parked}', '2', '"tool_calls":%[', '"tool_calls":[{"id":"p0"},')`,
			},
		},
		{
			name: "a call was started twice", want: found(store.CallRepeated, running, ""),
			file: []string{
				"INSERT INTO entries SELECT id + 1, at, type, data FROM entries WHERE id = " + at("{running}", "3"),
				"UPDATE runs SET seq = seq + 1 WHERE id = '{running}'",
			},
			redis: []string{
				`call('HSET', base .. 'r:{running}', '4', call('HGET', base .. 'r:{running}', '3')) return change('{running}', 2, '4')`,
			},
		},
	}
}

func holdDamages() []damage {
	return []damage{
		{
			name: "the pending hold is missing", want: found(store.HoldMissing, held, holdOf(held)),
			file: []string{"DELETE FROM holds WHERE id = '{hold}'"},
			redis: []string{
				`call('ZREM', base .. 'holds:prod', '{hold}') call('ZREM', base .. 'holds:prod:pending', '{hold}') return call('HDEL', base .. 'r:{held}', 'h1')`,
			},
		},
		{
			name: "a closed hold is missing", want: found(store.HoldMissing, completed, holdOf(completed)),
			file: []string{"DELETE FROM holds WHERE id = '{done}'"},
			redis: []string{
				`call('ZREM', base .. 'holds:prod', '{done}') call('ZREM', base .. 'holds:prod:decided', '{done}') return call('HDEL', base .. 'r:{completed}', 'h1')`,
			},
		},
		{
			name: "the hold is no JSON", want: found(store.HoldDamaged, held, holdOf(held)),
			file: []string{"UPDATE holds SET body = x'7b' WHERE id = '{hold}'"},
			redis: []string{
				`return edit('{held}', 'h1', '^(%S+ %S+ %S+ %S+ %S+ ).*$', '%1{')`,
			},
		},
		{
			name: "the hold is pending in one place only", want: found(store.HoldDamaged, completed, holdOf(completed)),
			file: []string{"UPDATE holds SET status = 'pending' WHERE id = '{done}'"},
			redis: []string{
				`edit('{completed}', 'h1', '^%S+', 'pending') call('ZREM', base .. 'holds:prod:decided', '{done}') call('ZADD', base .. 'holds:prod:pending', 1, '{done}') return 1`,
			},
		},
		{
			name: "the hold shows other arguments", want: found(store.HoldDiffers, held, holdOf(held)),
			file: []string{"UPDATE holds SET body = CAST(replace(CAST(body AS TEXT), '9007199254740993', '9007199254740992') AS BLOB) WHERE id = '{hold}'"},
			redis: []string{
				`return edit('{held}', 'h1', '9007199254740993', '9007199254740992')`,
			},
		},
		{
			name: "a decision is another one", want: found(store.HoldDiffers, completed, holdOf(completed)),
			file: []string{"UPDATE holds SET body = CAST(replace(CAST(body AS TEXT), 'approve\",\"by', 'reject\",\"by') AS BLOB) WHERE id = '{done}'"},
			redis: []string{
				`return edit('{completed}', 'h1', 'approve","by', 'reject","by')`,
			},
		},
		{
			name: "the record waits on no hold",
			want: []breach{{code: store.HoldStray, run: held, hold: holdOf(held)}, {code: store.StatusDiffers, run: held}},
			file: []string{"UPDATE runs SET hold = '' WHERE id = '{held}'"},
			redis: []string{
				`return change('{held}', 6, '')`,
			},
		},
		{
			name: "a hold that nothing opened", want: []breach{
				{code: store.HoldStray, run: queued, hold: holdOf(queued)},
			},
			file: []string{`INSERT INTO holds (id, run, env, agent, status, revision, created_at, expires_at, body)
				SELECT replace(id, substr('{held}', 3), substr('{queued}', 3)), (SELECT n FROM runs WHERE id = '{queued}'), env, agent, status, revision, created_at, expires_at,
				CAST(replace(CAST(body AS TEXT), substr('{held}', 3), substr('{queued}', 3)) AS BLOB) FROM holds WHERE id = '{hold}'`},
		},
	}
}

func orphanDamages() []damage {
	return []damage{
		{
			name: "a record is missing", want: []breach{{code: store.HoldOrphan, run: held, hold: holdOf(held)}, {code: store.JournalOrphan}, {code: store.StateOrphan, run: held}},
			file: []string{"DELETE FROM runs WHERE id = '{held}'"},
		},
		{
			name: "state of a run that is gone", want: found(store.StateOrphan, gone, ""),
			file: []string{"INSERT INTO state (scope, key, value) VALUES ('run/{gone}', 'k', x'31')"},
			redis: []string{
				`return call('HSET', base .. 's:r:{gone}', 'k', '1')`,
			},
		},
		{
			name: "a document is no JSON", want: []breach{{code: store.DocumentDamaged}},
			file:  []string{"UPDATE documents SET text = x'7b' WHERE name = 'keys'"},
			redis: []string{`call('HSET', base .. 'docs:prod:keys', 't', '{') return 1`},
		},
		{
			name: "a document has no version", want: []breach{{code: store.DocumentDamaged}},
			file:  []string{"UPDATE documents SET version = 0 WHERE name = 'keys'"},
			redis: []string{`return call('HDEL', base .. 'docs:prod:keys', 'n')`},
		},
		{
			name: "a value is missing where there must be one", want: found(store.FileDamaged, "", ""),
			file: []string{
				"PRAGMA writable_schema = ON",
				"UPDATE sqlite_schema SET sql = replace(sql, 'value BLOB NOT NULL', 'value BLOB') WHERE name = 'state'",
				"PRAGMA writable_schema = RESET",
				"UPDATE state SET value = NULL",
				"PRAGMA writable_schema = ON",
				"UPDATE sqlite_schema SET sql = replace(sql, 'value BLOB', 'value BLOB NOT NULL') WHERE name = 'state'",
				"PRAGMA writable_schema = RESET",
			},
		},
		{
			name: "a hold whose id names no run",
			want: []breach{{code: store.HoldOrphan, hold: "strange"}, {code: store.HoldMissing, run: completed, hold: holdOf(completed)}},
			file: []string{"UPDATE holds SET id = 'strange' WHERE id = '{done}'"},
		},
	}
}

// redisDamages are of indexes and expiries that only Redis has. Runs are kept for
// an hour there.
func redisDamages() []damage {
	return []damage{
		{
			name: "a lease ends at another time", want: found(store.DueTime, running, ""),
			redis: []string{`return call('ZADD', due, 'CH', call('ZSCORE', due, '{running}') + 1, '{running}')`},
		},
		{
			name: "a run that does not exist is due", want: found(store.DueStray, gone, ""),
			redis: []string{`return call('ZADD', due, 1, '{gone}')`},
		},
		{
			name: "a run is not in the list of all", want: found(store.RunListMissing, queued, ""),
			redis: []string{`return call('ZREM', base .. 'runs:prod', '{queued}')`},
		},
		{
			name: "a run is not in the list of its status", want: found(store.RunListMissing, completed, ""),
			redis: []string{`return call('ZREM', base .. 'runs:prod:completed', '{completed}')`},
		},
		{
			name: "a run is also in the list of another status", want: found(store.RunListStray, completed, ""),
			redis: []string{`return call('ZADD', base .. 'runs:prod:held', 1, '{completed}')`},
		},
		{
			name:  "a run is only in the list of another status",
			want:  []breach{{code: store.RunListMissing, run: held}, {code: store.RunListStray, run: held}},
			redis: []string{`call('ZREM', base .. 'runs:prod:held', '{held}') return call('ZADD', base .. 'runs:prod:running', 1, '{held}')`},
		},
		{
			name: "a run is also in the list of an unknown environment", want: found(store.RunListStray, queued, ""),
			redis: []string{`return call('ZADD', base .. 'runs:test', 1, '{queued}')`},
		},
		{
			name: "a run is listed at another time", want: found(store.RunListStray, queued, ""),
			redis: []string{`return call('ZADD', base .. 'runs:prod', 'CH', 1, '{queued}')`},
		},
		{
			name: "a list has a run that does not exist", want: found(store.RunListStray, gone, ""),
			redis: []string{`call('ZADD', base .. 'runs:prod:failed', 1, '{gone}') return call('ZADD', base .. 'runs:prod', 1, '{gone}')`},
		},
		{
			name: "a hold is not in the list of all", want: found(store.HoldListMissing, held, holdOf(held)),
			redis: []string{`return call('ZREM', base .. 'holds:prod', '{hold}')`},
		},
		{
			name: "a pending hold cannot be seen", want: found(store.HoldListMissing, held, holdOf(held)),
			redis: []string{`return call('ZREM', base .. 'holds:prod:pending', '{hold}')`},
		},
		{
			name: "a decided hold is listed as pending", want: found(store.HoldListStray, completed, holdOf(completed)),
			redis: []string{`return call('ZADD', base .. 'holds:prod:pending', 1, '{done}')`},
		},
		{
			name: "a list has a hold that does not exist", want: found(store.HoldListStray, held, store.HoldID(held, 7)),
			redis: []string{`return call('ZADD', base .. 'holds:prod:pending', 1, string.gsub('{hold}', '1$', '7') .. '')`},
		},
		{
			name: "a list has a hold of a run that does not exist", want: found(store.HoldListStray, gone, holdOf(gone)),
			redis: []string{`return call('ZADD', base .. 'holds:test', 1, '{gonehold}')`},
		},
		{
			name: "an environment is not known", want: found(store.EnvMissing, "", ""),
			redis: []string{`return call('SREM', base .. 'envs', 'prod')`},
		},
		{
			name: "a finished run is kept for ever", want: found(store.ExpiryMissing, completed, ""),
			redis: []string{`call('ZREM', base .. 'retire', 'prod:completed:1:{completed}')
				return call('PERSIST', base .. 'r:{completed}')`},
		},
		{
			name: "a part of a finished run is kept for ever", want: found(store.ExpiryUneven, completed, ""),
			redis: []string{`return call('HSET', base .. 's:r:{completed}', 'k', '1')`},
		},
		{
			name: "a part of a finished run goes before the rest", want: found(store.ExpiryUneven, completed, ""),
			redis: []string{`call('HSET', base .. 's:r:{completed}', 'k', '1') return call('PEXPIRE', base .. 's:r:{completed}', 1000000)`},
		},
		{
			name: "the record of an unfinished run expires", want: found(store.ExpiryStray, queued, ""),
			redis: []string{`return call('PEXPIRE', base .. 'r:{queued}', 1000000)`},
		},
		{
			name:  "the record counts fewer entries and the hold is not opened",
			want:  []breach{{code: store.StatusDiffers, run: held}, {code: store.HoldStray, run: held, hold: holdOf(held)}},
			redis: []string{`return change('{held}', 2, '2')`},
		},
		{
			name: "a list has a hold whose id names no run", want: found(store.HoldListStray, "", "strange"),
			redis: []string{`return call('ZADD', base .. 'holds:prod', 1, 'strange')`},
		},
		{
			name: "state of an unfinished run expires", want: found(store.ExpiryStray, held, ""),
			redis: []string{`return call('PEXPIRE', base .. 's:r:{held}', 1000000)`},
		},
		{
			name: "the key of an unfinished run expires", want: found(store.ExpiryStray, keyed, ""),
			redis: []string{`return call('PEXPIRE', base .. 'k:{key}', 1000000)`},
		},
		{
			name: "a finished run is not noted", want: found(store.RetireMissing, completed, ""),
			redis: []string{`return call('ZREM', base .. 'retire', 'prod:completed:1:{completed}')`},
		},
		{
			name: "a finished run is noted for another time", want: found(store.RetireStray, completed, ""),
			redis: []string{`return call('ZADD', base .. 'retire', 'CH', 1, 'prod:completed:1:{completed}')`},
		},
		{
			name: "a finished run is noted as failed", want: found(store.RetireStray, completed, ""),
			redis: []string{`return call('ZADD', base .. 'retire', 1, 'prod:failed:1:{completed}')`},
		},
		{
			name: "an unfinished run is noted", want: found(store.RetireStray, held, ""),
			redis: []string{`return call('ZADD', base .. 'retire', 1, 'prod:completed:1:{held}')`},
		},
		{
			name: "a key is gone", want: found(store.KeyMissing, keyed, ""),
			redis: []string{`return call('DEL', base .. 'k:{key}')`},
		},
		{
			name: "a key leads to a run that does not exist", want: found(store.KeyStray, gone, ""),
			redis: []string{`return call('SET', base .. 'k:strange', '{gone}') and 1`},
		},
		{
			name: "a key leads to a run that has none", want: found(store.KeyStray, queued, ""),
			redis: []string{`return call('SET', base .. 'k:strange', '{queued}') and 1`},
		},
		{
			name:  "a record has lost its fields",
			want:  found(store.RecordDamaged, queued, ""),
			redis: []string{`return call('HDEL', base .. 'r:{queued}', 'v')`},
		},
		{
			name:  "a record cannot be read",
			want:  found(store.RecordDamaged, held, ""),
			redis: []string{`return call('HSET', base .. 'r:{held}', 'v', 'garbage') == 0 and 1`},
			file:  []string{"UPDATE runs SET leased = 5 WHERE id = '{held}'"},
		},
		{
			name:  "a run is of another type",
			want:  found(store.RecordDamaged, held, ""),
			redis: []string{`return call('SET', base .. 'r:{held}', 'x') and 1`},
		},
		{
			name: "a record is missing in Redis",
			want: []breach{
				{code: store.DueStray, run: held},
				{code: store.RunListStray, run: held},
				{code: store.HoldListStray, run: held, hold: holdOf(held)},
				{code: store.StateOrphan, run: held},
			},
			redis: []string{`return call('DEL', base .. 'r:{held}')`},
		},
		{
			name: "a hold that nothing opened, in Redis", want: found(store.HoldStray, queued, holdOf(queued)),
			redis: []string{`local id = 'h_' .. string.sub('{queued}', 3) .. '_1'
				local h = string.gsub(call('HGET', base .. 'r:{held}', 'h1'), string.sub('{held}', 3), string.sub('{queued}', 3))
				call('ZADD', base .. 'holds:prod', 1, id)
				call('ZADD', base .. 'holds:prod:pending', 1, id)
				call('HSET', base .. 'r:{queued}', 'h1', h)
				return change('{queued}', 7, '1')`},
		},
	}
}

// sorted gives findings an order to compare them in.
func sorted(list []breach) []breach {
	list = slices.Clone(list)
	slices.SortFunc(list, func(a, b breach) int {
		return cmp.Or(cmp.Compare(a.code, b.code), cmp.Compare(a.run, b.run), cmp.Compare(a.hold, b.hold))
	})
	return list
}

// repairs is what a repair must report of the findings, and what must be left:
// indexes are repaired where nothing else is wrong with the run.
func repairs(found []breach) (reported, left []breach) {
	doubtful := map[string]bool{}
	for _, b := range found {
		doubtful[b.run] = doubtful[b.run] || !b.code.Repairable()
	}
	for _, b := range found {
		if b.repaired = !doubtful[b.run]; !b.repaired {
			left = append(left, b)
		}
		reported = append(reported, b)
	}
	return reported, left
}

func same(t *testing.T, what string, got, want []breach) {
	t.Helper()
	if diff := gocmp.Diff(sorted(want), sorted(got), gocmp.AllowUnexported(breach{})); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// judge checks a damaged store three times: it tells the damage and changes
// nothing, repairs what is an index, and finds only the rest afterwards.
func judge(t *testing.T, s store.Inspector, d damage) {
	t.Helper()
	same(t, "found", check(t, s, false), d.want)
	reported, left := repairs(d.want)
	same(t, "repaired", check(t, s, true), reported)
	same(t, "left", check(t, s, false), left)
}

func openFile(tb testing.TB, path string, c clock.Clock) *file.Store {
	tb.Helper()
	s, err := file.Open(tb.Context(), file.Config{Path: path, Clock: c})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Error(err)
		}
	})
	return s
}

func TestFileDamage(t *testing.T) {
	t.Parallel()
	for _, d := range damages() {
		if len(d.file) == 0 {
			continue
		}
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "runs.db")
			s := openFile(t, path, storetest.NewClock())
			world(t, s)
			same(t, "before", check(t, s, true), nil)
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(5000)")
			if err != nil {
				t.Fatal(err)
			}
			db.SetMaxOpenConns(1)
			for _, q := range d.file {
				res, err := db.ExecContext(context.WithoutCancel(t.Context()), fill(q))
				if err != nil {
					t.Fatalf("%s: %v", fill(q), err)
				}
				if n, err := res.RowsAffected(); err == nil && n == 0 && q[:6] != "PRAGMA" && q[:7] != "REINDEX" {
					t.Fatalf("%s changes nothing", fill(q))
				}
			}
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
			judge(t, openFile(t, path, storetest.NewClock()), d)
		})
	}
}

// scriptHead begins the scripts that damage Redis: change sets field n of what
// changes in a record, edit replaces once in a field of a run.
const scriptHead = `local call, base, due = redis.call, KEYS[1], KEYS[1] .. 'due'
local function change(run, n, to)
	local fields, i = {}, 0
	for f in string.gmatch(call('HGET', base .. 'r:' .. run, 'v') .. ' ', '(%S*) ') do
		i = i + 1
		fields[i] = i == n and to or f
	end
	call('HSET', base .. 'r:' .. run, 'v', table.concat(fields, ' '))
	return i == 9 and 1 or 0
end
local function edit(run, field, from, to)
	local text, n = string.gsub(call('HGET', base .. 'r:' .. run, field), from, to, 1)
	call('HSET', base .. 'r:' .. run, field, text)
	return n
end
`

func openRedis(tb testing.TB, url, prefix string, partitions int) *redis.Store {
	tb.Helper()
	s, err := redis.Open(tb.Context(), redis.Config{
		URL: url, Prefix: prefix, Partitions: partitions, Retention: time.Hour, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Error(err)
		}
	})
	return s
}

func TestRedisDamage(t *testing.T) {
	t.Parallel()
	r := testenv.StartRedis(t)
	for n, d := range slices.Concat(damages(), redisDamages()) {
		if len(d.redis) == 0 {
			continue
		}
		t.Run(d.name, func(t *testing.T) {
			prefix := fmt.Sprintf("case%d[*]", n)
			s := openRedis(t, r.URL(), prefix, 1)
			world(t, s)
			same(t, "before", check(t, s, true), nil)
			for _, script := range d.redis {
				if got := r.Command("EVAL", scriptHead+fill(script), "1", prefix+":{p0}:"); !strings.HasPrefix(got, ":") || got == ":0" {
					t.Fatalf("%s\nchanges nothing: %s", fill(script), got)
				}
			}
			d.want = slices.Concat(d.want, d.redisToo)
			judge(t, s, d)
		})
	}
}

// A key that leads to another run is wrong for both; one repair serves both.
func TestKeyLeadsToAnotherRun(t *testing.T) {
	t.Parallel()
	r := testenv.StartRedis(t)
	s := openRedis(t, r.URL(), "", 1)
	world(t, s)
	r.Command("SET", "agentos:{p0}:k:"+theKey, queued)
	same(t, "found", check(t, s, false), []breach{{code: store.KeyMissing, run: keyed}, {code: store.KeyStray, run: queued}})
	check(t, s, true)
	same(t, "left", check(t, s, false), nil)
	if got := r.Command("GET", "agentos:{p0}:k:"+theKey); got != keyed {
		t.Errorf("the key leads to %s", got)
	}
}

// Each breach there can be is planted in a real store, in both where both can have it.
func TestEveryCodeIsPlanted(t *testing.T) {
	t.Parallel()
	planted := map[store.FindingCode]bool{}
	for _, d := range slices.Concat(damages(), redisDamages()) {
		for _, b := range slices.Concat(d.want, d.redisToo) {
			planted[b.code] = true
		}
	}
	for _, c := range codes() {
		if !planted[c] {
			t.Errorf("%s is found nowhere", c)
		}
	}
	if len(planted) != len(codes()) {
		t.Errorf("%d codes are planted, there are %d", len(planted), len(codes()))
	}
}

// What belongs to no partition of the store, or to another prefix, is left alone.
func TestForeignKeys(t *testing.T) {
	t.Parallel()
	r := testenv.StartRedis(t)
	s := openRedis(t, r.URL(), "mine", 2)
	for _, key := range []string{"other:{p0}:r:r_1", "mine:{p7}:r:r_1", "mine:{px}:j:r_1", "mine:{p0}:new:thing", "mine:{p0}:s:s:session/x", "minex:{p0}:j:r_1"} {
		r.Command("SET", key, "x")
	}
	same(t, "found", check(t, s, true), nil)
}

// What lies in a partition it does not belong to is found there.
func TestOtherPartitions(t *testing.T) {
	t.Parallel()
	r := testenv.StartRedis(t)
	s := openRedis(t, r.URL(), "", 3)
	world(t, s)
	same(t, "before", check(t, s, true), nil)
	var home string
	for p := range 3 {
		base := fmt.Sprintf("agentos:{p%d}:", p)
		r.Command("ZADD", base+"due", "1", gone)
		r.Command("ZADD", base+"runs:prod", "1", gone)
		r.Command("ZADD", base+"holds:prod", "1", "strange"+strconv.Itoa(p))
		if r.Command("EXISTS", base+"r:"+queued) == ":1" {
			home = base
		}
	}
	away := "agentos:{p0}:"
	if home == away {
		away = "agentos:{p1}:"
	}
	r.Command("COPY", home+"r:"+queued, away+"r:"+queued)
	got := check(t, s, true)
	for _, want := range []breach{
		{store.DueStray, gone, "", true},
		{store.RunListStray, gone, "", true},
		{store.RecordDamaged, queued, "", false},
		{store.HoldListStray, "", "strange0", true},
		{store.HoldListStray, "", "strange1", true},
		{store.HoldListStray, "", "strange2", true},
	} {
		if !slices.Contains(got, want) {
			t.Errorf("not found: %+v", want)
		}
	}
	for p := range 3 {
		if left := r.Command("ZSCORE", fmt.Sprintf("agentos:{p%d}:due", p), gone); left != "$-1" {
			t.Errorf("partition %d still has the run in due", p)
		}
	}
}
