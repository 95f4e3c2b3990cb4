package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
)

// measureAll measures every group that is wanted.
func (b *bench) measureAll(ctx context.Context) (*report, error) {
	match, err := regexp.Compile(b.Match)
	if err != nil {
		return nil, fmt.Errorf("--match must be a regular expression: %w", err)
	}
	r := newReport(b.options)
	wanted := slices.DeleteFunc(rows(b.Journaled), func(r row) bool { return !b.wants(r.Group) || !match.MatchString(r.String()) })
	for _, w := range wanted {
		r.Rows = append(r.Rows, measured{row: w, Name: w.String()})
	}
	// Run by run, so that no variant has the machine's good hour to itself. A journal of some size is filled once.
	for n := range b.Runs {
		for i := range r.Rows {
			if r.Rows[i].Journaled == 0 {
				if err := b.once(ctx, &r.Rows[i], n+1); err != nil {
					return nil, err
				}
			}
		}
		if err := b.latencies(ctx, r, n+1); err != nil {
			return nil, err
		}
		if b.wants(groupWork) {
			w, err := ownWork(ctx, max(b.Dispatches/10, 2000))
			if err != nil {
				return nil, err
			}
			b.log("run %d: own work: %.1f µs, %d allocations", n+1, w.Nanoseconds/1e3, w.Allocs)
			r.Work = append(r.Work, w)
		}
	}
	for i := range r.Rows {
		if r.Rows[i].Journaled > 0 {
			if err := b.sized(ctx, &r.Rows[i]); err != nil {
				return nil, err
			}
		}
	}
	r.conclude()
	return r, nil
}

// once measures a row on a bed of its own.
func (b *bench) once(ctx context.Context, m *measured, run int) (err error) {
	d, err := b.lay(ctx, m.row, b.profilePath(m.row, run))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.close(), os.RemoveAll(d.store)) }()
	return b.sample(ctx, d, m, run)
}

func (b *bench) sample(ctx context.Context, d *bed, m *measured, run int) error {
	s, err := d.saturate(ctx, max(b.Dispatches*m.times/m.share, 100), b.profilePath(m.row, run))
	if err != nil {
		return fmt.Errorf("%s: %w", m.Name, err)
	}
	b.log("run %d: %s: %.0f/s; CPU %.0f µs worker, %.0f provider, %.0f broker", run, m.Name, s.PerSecond, s.Worker.CPU, s.Provider.CPU, s.Broker.CPU)
	m.Samples = append(m.Samples, s)
	return nil
}

// sized fills a journal, and measures all runs of a row on it: each adds a few dispatches to millions.
func (b *bench) sized(ctx context.Context, m *measured) (err error) {
	d, err := b.lay(ctx, m.row, "")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.close(), os.RemoveAll(d.store)) }()
	if m.BrokerHeap, err = d.fill(ctx, m.Journaled); err != nil {
		return err
	}
	b.log("%s: %.0f B of broker heap per dispatch", m.Name, m.BrokerHeap)
	for n := range b.Runs {
		if err := b.sample(ctx, d, m, n+1); err != nil {
			return err
		}
	}
	return nil
}

// latencies measures the waiting, with one in flight and at half of what ours does at saturation: both variants
// under the same load.
func (b *bench) latencies(ctx context.Context, r *report, run int) error {
	if !b.wants(groupLatency) {
		return nil
	}
	rate := r.rate(run)
	for _, role := range []role{roleFloor, roleOurs} {
		w := row{Group: groupLatency, Role: role, Hooks: 1, Replicas: 1, Storage: fileStorage}
		d, err := b.lay(ctx, w, "")
		if err != nil {
			return err
		}
		err = b.bothLatencies(ctx, d, r.waiting(w), run, rate)
		if err := errors.Join(err, d.close(), os.RemoveAll(d.store)); err != nil {
			return fmt.Errorf("%s, latency: %w", w, err)
		}
	}
	return nil
}

func (b *bench) bothLatencies(ctx context.Context, d *bed, w *waited, run int, rate float64) (err error) {
	c, err := d.employ(ctx, 0, "")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.stop()) }()
	// What connects, and what is allocated first, is not what is measured.
	if _, err := d.wait(ctx, max(b.Latencies/10, 1), 0); err != nil {
		return err
	}
	alone, err := d.wait(ctx, b.Latencies, 0)
	if err != nil {
		return err
	}
	loaded, err := d.wait(ctx, b.Latencies, rate)
	if err != nil {
		return err
	}
	b.log("run %d: %s: p50 %v alone, %v at %.0f/s", run, w.Name, alone.P50, loaded.P50, rate)
	w.Alone, w.Loaded = append(w.Alone, alone), append(w.Loaded, loaded)
	return nil
}
