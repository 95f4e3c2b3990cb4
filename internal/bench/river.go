package main

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riversqlite"
	"github.com/riverqueue/river/rivermigrate"
)

// riverWorkers work at once, as many as in the documentation's example.
const riverWorkers = 100

// receiptJob is a receipt as a job.
type receiptJob struct {
	Body string `json:"body"`
}

// Kind implements river.JobArgs.
func (receiptJob) Kind() string { return "receipt" }

// receiptWorker writes the record and the intent in one transaction. Should the job run again, it writes nothing: that
// is as good as completing the job in the same transaction, and leaves completing to River, which does it in batches.
type receiptWorker struct {
	river.WorkerDefaults[receiptJob]
	db *sql.DB
}

// Work implements river.Worker.
func (w *receiptWorker) Work(ctx context.Context, job *river.Job[receiptJob]) error {
	id := hash(job.Args.Body)
	tx, err := w.db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	defer func() { _ = tx.Rollback() }() // does nothing after a commit
	if _, err := tx.ExecContext(ctx, insertRecord, id, job.Args.Body); err != nil {
		return fmt.Errorf("write the record: %w", err)
	}
	if _, err := tx.ExecContext(ctx, insertIntent, id, job.Args.Body); err != nil {
		return fmt.Errorf("write the intent: %w", err)
	}
	return tx.Commit()
}

// serveRiver works off jobs that are in the database before it starts. One connection, as the documentation asks for
// on SQLite; fetching is not held back.
func serveRiver(ctx context.Context, j job) (*served, error) {
	db, err := openSQLite(ctx, j.Store, 1)
	if err != nil {
		return nil, err
	}
	driver := riversqlite.New(db)
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	migrator, err := rivermigrate.New(driver, &rivermigrate.Config{Logger: log})
	if err != nil {
		return nil, fmt.Errorf("make the migrator: %w", err)
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return nil, fmt.Errorf("migrate: %w", err)
	}
	workers := river.NewWorkers()
	river.AddWorker(workers, &receiptWorker{db: db})
	client, err := river.NewClient(driver, &river.Config{
		Queues:            map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: riverWorkers}},
		Workers:           workers,
		Logger:            log,
		FetchCooldown:     river.FetchCooldownMin,
		FetchPollInterval: 10 * time.Millisecond,
	})
	if err != nil {
		return nil, fmt.Errorf("make the client: %w", err)
	}
	const batch = 500
	for from := 0; from < j.Receipts; from += batch {
		var jobs []river.InsertManyParams
		for i := from; i < min(from+batch, j.Receipts); i++ {
			jobs = append(jobs, river.InsertManyParams{Args: receiptJob{Body: string(opaqueBody(i))}})
		}
		if _, err := client.InsertManyFast(ctx, jobs); err != nil {
			return nil, fmt.Errorf("insert the jobs: %w", err)
		}
	}
	completed, unsubscribe := client.SubscribeConfig(&river.SubscribeConfig{
		ChanSize: j.Receipts, Kinds: []river.EventKind{river.EventKindJobCompleted},
	})
	var done atomic.Int64
	go func() {
		for range completed {
			done.Add(1)
		}
	}()
	if err := client.Start(ctx); err != nil {
		return nil, fmt.Errorf("start: %w", err)
	}
	return &served{done: done.Load, stop: func() error {
		defer unsubscribe()
		if err := client.Stop(ctx); err != nil {
			return fmt.Errorf("stop: %w", err)
		}
		for _, rows := range []string{"bench_records", "bench_intents", "river_job WHERE state = 'completed'"} {
			if err := wantRows(ctx, db, "SELECT count(*) FROM "+rows, j.Receipts); err != nil {
				return err
			}
		}
		return db.Close()
	}}, nil
}
