package core_test

import (
	"slices"
	"time"

	"github.com/afterwrite/afterwrite/dispatcher/core"
	"github.com/afterwrite/afterwrite/events"
)

// mayFollow is the status table of the design. A failed record is followed by redriven only if it holds its input.
var mayFollow = map[events.Status][]events.Status{
	"": {"proposed", "not_applicable", "retrying", "failed"},

	"proposed":       {},
	"not_applicable": {},
	"retrying":       {"proposed", "not_applicable", "retrying", "failed", "redriven"},
	"failed":         {"redriven"},
	"redriven":       {"proposed", "not_applicable", "retrying", "failed", "redriven"},
}

// checkRecord fails on a record that the design does not allow after last, which is nil for the first.
func (w *world) checkRecord(last, r *events.DispatchReceipt) {
	w.t.Helper()
	fail := func(rule string) {
		w.t.Helper()
		w.t.Fatalf("%s:\nlast %s\nnext %s", rule, events.Canonical(last), events.Canonical(r))
	}
	if _, err := events.Decode[events.DispatchReceipt](events.Canonical(r)); err != nil {
		fail("a record is not of the contract: " + err.Error())
	}
	status, number := events.Status(""), 0
	if last != nil {
		status, number = last.Status, last.RecordNumber
		if last.DispatchID != r.DispatchID || last.InputDigest != r.InputDigest || last.ReceiptIdentity != r.ReceiptIdentity ||
			last.RegistrationDigest != r.RegistrationDigest || last.CapabilityID != r.CapabilityID || last.Profile != r.Profile {
			fail("a record is about something else than the last")
		}
	}
	if !slices.Contains(mayFollow[status], r.Status) {
		fail("a status may not follow")
	}
	if status == "failed" && last.Input == nil {
		fail("redriven without its input")
	}
	if r.RecordNumber != number+1 {
		fail("record numbers do not increase by one")
	}
	if r.Attempt < r.Invocations || r.Invocations < 0 {
		fail("more invocations than attempts")
	}
	if hook, installed := w.in.Hooks[r.HookID]; installed && r.Status != "failed" && r.Invocations > hook.Registration.Budget.MaxInvocationsPerDispatch {
		fail("more invocations than the budget")
	}
	if profile, known := w.in.Profiles[r.Profile]; known && r.Status != "failed" && r.Attempt > profile.Retry.MaxAttempts {
		fail("more attempts than the profile allows")
	}
	if (len(r.Intents) > 0) != (r.Status == "proposed") {
		fail("intents stand exactly in proposed")
	}
	kept := r.Status == "retrying" || r.Status == "redriven" ||
		r.Status == "failed" && r.Code != "input_boundary_rejected" && r.Code != "result_contract_rejected"
	if (r.Input != nil) != kept {
		fail("the input stands exactly where it may be needed")
	}
	if (r.Status == "redriven") != (r.Actor != "") || r.Status == "redriven" && (r.Attempt != 0 || r.Invocations != 0) {
		fail("redriven names its actor and begins a new series, and nothing else does")
	}
	if (r.Status == "retrying") != (r.RetryAt != "") {
		fail("retry_at stands exactly in retrying")
	}
	if r.Status == "retrying" {
		wait := events.Timestamp(r.RetryAt).Time().Sub(r.RecordedAt.Time())
		if deferred := r.Reason == "hook_saturated" || r.Reason == "hook_suspended"; deferred && (wait != 0 || r.Code != "") {
			fail("a deferred dispatch is due at once, with no code")
		}
		if wait < 0 || wait > time.Hour {
			fail("the wait is no backoff")
		}
	}
	if (r.Status == "failed") && (r.Code == "" || r.Reason == "") {
		fail("failed says why")
	}
}

// checkSettled fails if the message may not be acknowledged yet: its dispatch must be terminal with every intent
// stored, or have a wake-up. A wake-up whose record is gone by age is the exception.
func (w *world) checkSettled(d *delivery, key core.Key) {
	w.t.Helper()
	_, awaited := w.schedules[key]
	awaited = awaited || slices.ContainsFunc(w.wakeUps, func(m *message) bool { return m != d.message && m.key == key })
	history := w.journal[key]
	if len(history) == 0 {
		if d.receipt != nil || w.now.Sub(d.at) <= w.in.JournalAge {
			w.t.Fatalf("%s is acknowledged and %s has no record", d.message, key.Hook)
		}
		return
	}
	last := history[len(history)-1].Record
	switch last.Status {
	case events.StatusProposed, events.StatusNotApplicable, events.StatusFailed:
		for _, intent := range last.Intents {
			if at := w.intents[intent.IntentID]; at != last.RecordedAt && !awaited {
				w.t.Fatalf("%s is acknowledged and an intent of %s is accepted at %q, want %s", d.message, key.Hook, at, last.RecordedAt)
			}
		}
	case events.StatusRetrying, events.StatusRedriven:
		if !awaited {
			w.t.Fatalf("%s is acknowledged and %s has no wake-up: %s", d.message, key.Hook, w.summary(last))
		}
	}
}
