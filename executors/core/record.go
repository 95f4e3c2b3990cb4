package core

import (
	"time"

	"github.com/afterwrite/afterwrite/events"
)

// draft is the record that is about to follow an entry.
type draft struct {
	entry  Entry
	record *events.Execution
	actor  Actor
	now    time.Time
}

// follow begins the record after the entry's: who and what it is about stays, and what belongs to one status goes.
func (e Entry) follow(a Actor, now time.Time) *draft {
	next := *e.Record
	next.Reason, next.LeaseUntil, next.ResumeAt = "", "", ""
	if next.Status != events.ExecutionReturned {
		next.Result = nil
	}
	return &draft{entry: e, record: &next, actor: a, now: now}
}

func (d *draft) save(outcome Outcome, after ...Effect) (*Result, error) {
	r := d.record
	r.SchemaVersion = events.ExecutionSchema
	r.Actor, r.ActorKind = d.actor.ID, d.actor.Kind
	r.RecordNumber = 1
	if d.entry.Record != nil {
		r.RecordNumber = d.entry.Record.RecordNumber + 1
	}
	r.RecordedAt = events.NewTimestamp(d.now)
	return &Result{Outcome: outcome, Save: &Save{Record: r, Expect: d.entry.Sequence}, after: after}, nil
}

// claim begins a run, which is an attempt.
func (d *draft) claim(grant *Grant, runID string) (*Result, error) {
	r := d.record
	r.Status = events.ExecutionClaimed
	r.Attempt++
	r.RunID, r.LeaseUntil = events.Optional(runID), grant.lease(d.now)
	run := Run{Key: Key{Intent: r.IntentID, Executor: r.Executor}, ID: runID}
	return d.save(OutcomeClaimed, Begin{run, r})
}

func (d *draft) pause(reason events.ExecutionReason, resumeAt time.Time) (*Result, error) {
	d.record.Status, d.record.Reason = events.ExecutionPaused, reason
	d.record.ResumeAt = events.Optional(events.NewTimestamp(resumeAt))
	return d.save(OutcomePaused, HandBack{At: resumeAt})
}

func (d *draft) fail(reason events.ExecutionReason) (*Result, error) {
	d.record.Status, d.record.Reason, d.record.Result = events.ExecutionFailed, reason, nil
	return d.save(OutcomeFailed, Acknowledge{})
}
