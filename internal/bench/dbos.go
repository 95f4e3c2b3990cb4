package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dbos-inc/dbos-transact-golang/dbos"
	_ "github.com/dbos-inc/dbos-transact-golang/dbos/driver/sqlite" // keeps workflows in SQLite
)

// dbosWorkflows run at once. SQLite has one writer, so more of them only wait.
const dbosWorkflows = 8

// serveDBOS runs a workflow for each receipt, which is the workflow's id and input: started directly and not from a
// queue, which would be polled. Its first step asks the hook, and the step's checkpoint is the record; its second is
// a transaction on the same database that writes the intent together with its own checkpoint.
func serveDBOS(ctx context.Context, j job) (*served, error) {
	db, err := openSQLite(ctx, j.Store, dbosWorkflows)
	if err != nil {
		return nil, err
	}
	app, err := dbos.NewContext(ctx, dbos.Config{
		AppName:        "bench",
		SQLiteSystemDB: db,
		Logger:         slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	if err != nil {
		return nil, fmt.Errorf("make the context: %w", err)
	}
	source, err := dbos.NewDataSource(app, db)
	if err != nil {
		return nil, fmt.Errorf("make the data source: %w", err)
	}
	dispatch := func(flow dbos.Context, receipt string) (string, error) {
		result, err := dbos.RunAsStep(flow, func(context.Context) (string, error) { return receipt, nil })
		if err != nil {
			return "", err
		}
		return dbos.RunAsTransaction(flow, source, func(ctx context.Context, tx dbos.Tx) (string, error) {
			_, err := tx.Exec(ctx, insertIntent, hash(result), result)
			return "", err
		})
	}
	dbos.RegisterWorkflow(app, dispatch, dbos.WithWorkflowName("dispatch"))
	if err := dbos.Launch(app); err != nil {
		return nil, fmt.Errorf("launch: %w", err)
	}
	var next, done atomic.Int64
	var starters sync.WaitGroup
	for range dbosWorkflows {
		starters.Go(func() {
			for i := int(next.Add(1)); i <= j.Receipts; i = int(next.Add(1)) {
				receipt := string(opaqueBody(i))
				flow, err := dbos.RunWorkflow(app, dispatch, receipt, dbos.WithWorkflowID(hash(receipt)))
				if err == nil {
					_, err = flow.GetResult()
				}
				if err != nil {
					crash(fmt.Errorf("dbos: %w", err))
				}
				done.Add(1)
			}
		})
	}
	return &served{done: done.Load, stop: func() error {
		starters.Wait()
		if err := wantRows(ctx, db, "SELECT count(*) FROM bench_intents", j.Receipts); err != nil {
			return err
		}
		if err := wantRows(ctx, db, "SELECT count(*) FROM workflow_status WHERE status = 'SUCCESS'", j.Receipts); err != nil {
			return err
		}
		if err := dbos.Shutdown(app, 10*time.Second); err != nil {
			return fmt.Errorf("shut down: %w", err)
		}
		return db.Close()
	}}, nil
}
