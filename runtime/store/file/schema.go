package file

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"strings"

	_ "modernc.org/sqlite" // the driver "sqlite"
)

// version is the version of the schema, kept as user_version. It grows by one
// with each change, which adds its step to migrate.
const version = 4

// appID marks the file as ours (application_id).
const appID = 0x61676f73

// seqBits is the part of an entry's id that counts within its run.
const (
	seqBits = 20
	maxSeq  = 1<<seqBits - 1
)

// schema is the newest version. Times are unix milliseconds.
//
// Runs are numbered in the order of their creation (n), and every index of a
// table ends with that number, so lists are read newest first without sorting.
// Entries are keyed by run and place in one integer, (n << 20) | seq: a journal
// lies together in the table, and needs no second index.
const schema = `
CREATE TABLE runs (
	n          INTEGER PRIMARY KEY,
	id         TEXT    NOT NULL UNIQUE,
	key        TEXT    NOT NULL, -- the idempotency key, or ''
	request    TEXT    NOT NULL,
	env        TEXT    NOT NULL,
	agent      TEXT    NOT NULL,
	capability TEXT    NOT NULL,
	session    TEXT    NOT NULL,
	status     TEXT    NOT NULL,
	seq        INTEGER NOT NULL,
	epoch      INTEGER NOT NULL,
	idle       INTEGER NOT NULL,
	leased     INTEGER NOT NULL, -- 1 from the giving of a lease to its end by the worker
	due        INTEGER,          -- when somebody must look at it; NULL when finished
	hold       TEXT    NOT NULL, -- id of the pending hold, or ''
	cancel_by  TEXT    NOT NULL,
	summary    BLOB    NOT NULL,
	created_at INTEGER NOT NULL,
	updated_at INTEGER NOT NULL,
	op         TEXT    NOT NULL, -- the newest operation
	op_seq     INTEGER NOT NULL, -- seq before it
	notify_at  INTEGER,          -- when others are to be told of it; NULL when there is nothing to tell
	claimed    INTEGER NOT NULL DEFAULT 0, -- the end of the claim of its notice, or 0
	claims     INTEGER NOT NULL DEFAULT 0,
	told       BLOB    NOT NULL DEFAULT x''
) STRICT;
CREATE UNIQUE INDEX runs_key ON runs (key)      WHERE key <> '';
CREATE INDEX runs_due      ON runs (due)        WHERE due IS NOT NULL;
CREATE INDEX runs_finished ON runs (updated_at) WHERE due IS NULL;
CREATE INDEX runs_session  ON runs (session)    WHERE session <> '';
CREATE INDEX runs_status   ON runs (status);
CREATE INDEX runs_agent    ON runs (agent);
CREATE INDEX runs_env      ON runs (env);
CREATE INDEX runs_notify   ON runs (notify_at)  WHERE notify_at IS NOT NULL;

CREATE TABLE entries (
	id   INTEGER PRIMARY KEY, -- (runs.n << 20) | seq
	at   INTEGER NOT NULL,
	type TEXT    NOT NULL,
	data BLOB    NOT NULL
) STRICT;

CREATE TABLE holds (
	n          INTEGER PRIMARY KEY,
	id         TEXT    NOT NULL UNIQUE,
	run        INTEGER NOT NULL,
	env        TEXT    NOT NULL,
	agent      TEXT    NOT NULL,
	status     TEXT    NOT NULL,
	revision   INTEGER NOT NULL,
	created_at INTEGER NOT NULL,
	expires_at INTEGER NOT NULL,
	body       BLOB    NOT NULL
) STRICT;
CREATE INDEX holds_run    ON holds (run);
CREATE INDEX holds_status ON holds (status);
CREATE INDEX holds_agent  ON holds (agent);
CREATE INDEX holds_env    ON holds (env);

CREATE TABLE state (
	scope TEXT NOT NULL,
	key   TEXT NOT NULL,
	value BLOB NOT NULL,
	PRIMARY KEY (scope, key)
) STRICT;

CREATE TABLE orders (
	env     TEXT    NOT NULL PRIMARY KEY,
	version INTEGER NOT NULL,
	text    BLOB    NOT NULL
) STRICT;

CREATE TABLE documents (
	n       INTEGER PRIMARY KEY,
	env     TEXT    NOT NULL,
	name    TEXT    NOT NULL,
	version INTEGER NOT NULL,
	text    BLOB    NOT NULL,
	UNIQUE (env, name)
) STRICT;

CREATE TABLE logs (
	name  TEXT    NOT NULL,
	place INTEGER NOT NULL,
	key   TEXT    NOT NULL,
	item  BLOB    NOT NULL,
	PRIMARY KEY (name, place)
) STRICT;
CREATE UNIQUE INDEX logs_key ON logs (name, key);

CREATE TABLE probe (at INTEGER NOT NULL) STRICT;
INSERT INTO probe VALUES (0);
`

// fromVersion1 brings a file of version 1 to version 2. In version 1 the id of a run
// stood for its key, which the file did not keep: a request repeated with the key
// of an old run makes a new one.
const fromVersion1 = `
ALTER TABLE runs ADD COLUMN key TEXT NOT NULL DEFAULT '';
CREATE UNIQUE INDEX runs_key ON runs (key) WHERE key <> '';
CREATE TABLE orders (
	env     TEXT    NOT NULL PRIMARY KEY,
	version INTEGER NOT NULL,
	text    BLOB    NOT NULL
) STRICT;
PRAGMA user_version = 2;
`

// fromVersion2 brings a file of version 2 to version 3.
const fromVersion2 = `
CREATE TABLE documents (
	n       INTEGER PRIMARY KEY,
	env     TEXT    NOT NULL,
	name    TEXT    NOT NULL,
	version INTEGER NOT NULL,
	text    BLOB    NOT NULL,
	UNIQUE (env, name)
) STRICT;
PRAGMA user_version = 3;
`

// fromVersion3 adds notices and logs.
const fromVersion3 = `
ALTER TABLE runs ADD COLUMN notify_at INTEGER;
ALTER TABLE runs ADD COLUMN claimed   INTEGER NOT NULL DEFAULT 0;
ALTER TABLE runs ADD COLUMN claims    INTEGER NOT NULL DEFAULT 0;
ALTER TABLE runs ADD COLUMN told      BLOB    NOT NULL DEFAULT x'';
CREATE INDEX runs_notify ON runs (notify_at) WHERE notify_at IS NOT NULL;
CREATE TABLE logs (
	name  TEXT    NOT NULL,
	place INTEGER NOT NULL,
	key   TEXT    NOT NULL,
	item  BLOB    NOT NULL,
	PRIMARY KEY (name, place)
) STRICT;
CREATE UNIQUE INDEX logs_key ON logs (name, key);
PRAGMA user_version = 4;
`

// steps bring a file from each version to the next, beginning with version 1.
func steps() []string { return []string{fromVersion1, fromVersion2, fromVersion3} }

// source is the data source name of the file. A commit is on disk when it is
// answered (WAL with synchronous=FULL), and the log shrinks again after a burst.
func source(path string, memory, readOnly bool) string {
	q := url.Values{"_pragma": {"busy_timeout(5000)", "journal_mode(WAL)", "synchronous(FULL)", "journal_size_limit(67108864)"}}
	if memory {
		return "file::memory:"
	}
	if readOnly {
		q = url.Values{"_pragma": {"busy_timeout(5000)", "query_only(1)"}, "mode": {"ro"}}
	}
	return "file:" + (&url.URL{Path: path}).EscapedPath() + "?" + q.Encode()
}

// migrate brings the file to version, or refuses it.
func migrate(ctx context.Context, c *conn) error {
	t := &txn{ctx: ctx, conn: c}
	var have, app, tables int64
	if err := t.one("SELECT (SELECT user_version FROM pragma_user_version), (SELECT application_id FROM pragma_application_id), (SELECT count(*) FROM sqlite_schema)").
		Scan(&have, &app, &tables); err != nil {
		return err
	}
	switch {
	case tables == 0 && app == 0:
		_, err := c.c.ExecContext(ctx, fmt.Sprintf("BEGIN IMMEDIATE; %s PRAGMA application_id = %d; PRAGMA user_version = %d; COMMIT", schema, appID, version))
		return err
	case app != appID:
		return errors.New("the file is a database of another program; choose another file")
	case have >= 1 && have < version:
		_, err := c.c.ExecContext(ctx, "BEGIN IMMEDIATE; "+strings.Join(steps()[have-1:], "")+" COMMIT")
		return err
	case have != version:
		return fmt.Errorf("the file has schema version %d, this program knows version %d; use the program that wrote it", have, version)
	}
	return nil
}

// conn is one connection with the statements it has prepared. One goroutine uses
// it at a time.
type conn struct {
	c     *sql.Conn
	stmts map[string]*sql.Stmt
}

// stmt returns the query prepared. The number of different texts is small and
// fixed, lists included.
func (c *conn) stmt(ctx context.Context, query string) (*sql.Stmt, error) {
	if st := c.stmts[query]; st != nil {
		return st, nil
	}
	st, err := c.c.PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	c.stmts[query] = st
	return st, nil
}
