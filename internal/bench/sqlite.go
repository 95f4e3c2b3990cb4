package main

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"

	_ "modernc.org/sqlite" // the driver that both peers recommend
)

// openSQLite opens a database tuned for writing: a write-ahead log, synced at its checkpoints only. That outlives the
// process and not the machine, as the broker's default does.
func openSQLite(ctx context.Context, dir string, connections int) (*sql.DB, error) {
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "peer.sqlite3")+
		"?_pragma=journal_mode(WAL)&_pragma=synchronous(NORMAL)&_pragma=busy_timeout(5000)&_pragma=foreign_keys(ON)&_txlock=immediate")
	if err != nil {
		return nil, fmt.Errorf("open the database: %w", err)
	}
	db.SetMaxOpenConns(connections)
	if _, err := db.ExecContext(ctx, "CREATE TABLE bench_records (id TEXT PRIMARY KEY, body BLOB NOT NULL)"); err != nil {
		return nil, fmt.Errorf("create a table: %w", err)
	}
	if _, err := db.ExecContext(ctx, "CREATE TABLE bench_intents (id TEXT PRIMARY KEY, body BLOB NOT NULL)"); err != nil {
		return nil, fmt.Errorf("create a table: %w", err)
	}
	return db, nil
}

const (
	insertRecord = "INSERT INTO bench_records (id, body) VALUES (?, ?) ON CONFLICT DO NOTHING"
	insertIntent = "INSERT INTO bench_intents (id, body) VALUES (?, ?) ON CONFLICT DO NOTHING"
)

// wantRows fails unless the query counts n.
func wantRows(ctx context.Context, db *sql.DB, query string, n int) error {
	var have int
	if err := db.QueryRowContext(ctx, query).Scan(&have); err != nil {
		return fmt.Errorf("count rows: %w", err)
	}
	if have != n {
		return fmt.Errorf("%q must give %d, it gives %d", query, n, have)
	}
	return nil
}
