package simulation

import (
	"slices"

	"github.com/afterwrite/afterwrite/dispatcher/core"
	"github.com/afterwrite/afterwrite/events"
	"github.com/afterwrite/afterwrite/streams"
)

// check holds the history against what must be true of every one.
type check struct {
	w        *world
	b        *broker
	s        *setting
	releases []*release
	messages []*message
	plans    map[planOf][]planned
	// carriers are the places of the messages that bring a dispatch about, under any release.
	carriers map[core.Key][]int
	// outside are the digests of inputs that no hook may be called with.
	outside map[events.Digest]bool
	// refusals are why each digest of a receipt's data is refused.
	refusals map[string]events.RefusalReason
	// inputs are the digests that each dispatch was called with, in order.
	inputs map[core.Key][]events.Digest
	// accounted are the dispatches of receipts that were acknowledged, in that order.
	accounted []core.Key
	known     map[core.Key]bool
}

type planOf struct {
	told *told
	by   *release
}

func newCheck(w *world, b *broker, s *setting, releases []*release) *check {
	return &check{
		w: w, b: b, s: s, releases: releases, plans: map[planOf][]planned{}, carriers: map[core.Key][]int{},
		outside: map[events.Digest]bool{}, refusals: map[string]events.RefusalReason{}, known: map[core.Key]bool{},
		inputs: map[core.Key][]events.Digest{},
	}
}

func (c *check) plan(t *told, by *release) []planned {
	plan, ok := c.plans[planOf{t, by}]
	if !ok {
		plan = by.plan(t)
		c.plans[planOf{t, by}] = plan
	}
	return plan
}

func (c *check) published(m *message) {
	if m.told.refused != "" {
		c.refusals[events.SHA256(m.told.event.Data)] = m.told.refused
	}
	for _, by := range c.releases {
		for _, p := range c.plan(m.told, by) {
			c.carriers[p.key] = append(c.carriers[p.key], len(c.messages))
			if p.outside {
				c.outside[p.input] = true
			}
		}
	}
	c.messages = append(c.messages, m)
}

// again gives every message anew, as a consumer gets them that begins with the first.
func (c *check) again(consumer *consumer) []*message {
	for i, m := range c.messages {
		c.messages[i] = &message{consumer: consumer, told: m.told, sequence: m.sequence, at: m.at}
	}
	return slices.Clone(c.messages)
}

// appended holds a record against the one before it: the design's status table, counting, and the pauses.
func (c *check) appended(history []stored, record *events.DispatchReceipt) {
	c.pause(record)
	if record.Invocations > c.s.invocations[record.HookID] {
		c.w.fail("%s: %d invocations of %d", record.DispatchID, record.Invocations, c.s.invocations[record.HookID])
	}
	if record.Attempt > c.s.retry.MaxAttempts {
		c.w.fail("%s: %d attempts of %d", record.DispatchID, record.Attempt, c.s.retry.MaxAttempts)
	}
	used := record.Invocations >= c.s.invocations[record.HookID] || record.Attempt >= c.s.retry.MaxAttempts
	if record.Status == events.StatusRetrying && record.Code != "" && used {
		c.w.fail("%s: attempt %d with %d invocations is to be tried again", record.DispatchID, record.Attempt, record.Invocations)
	}
	before := lastOf(history).record
	if before == nil {
		if record.RecordNumber != 1 || record.Status == events.StatusRedriven {
			c.w.fail("%s begins with record %d, %s", record.DispatchID, record.RecordNumber, record.Status)
		}
		return
	}
	if record.RecordNumber != before.RecordNumber+1 {
		c.w.fail("%s: record %d follows %d", record.DispatchID, record.RecordNumber, before.RecordNumber)
	}
	if record.InputDigest != before.InputDigest {
		c.w.fail("%s: its input changed", record.DispatchID)
	}
	allowed := true
	switch before.Status {
	case events.StatusProposed, events.StatusNotApplicable:
		allowed = false
	case events.StatusFailed:
		allowed = record.Status == events.StatusRedriven && before.Input != nil
	case events.StatusRetrying, events.StatusRedriven:
	}
	if !allowed {
		c.w.fail("%s: %s follows %s", record.DispatchID, record.Status, before.Status)
	}
	if record.Status == events.StatusRedriven {
		if record.Attempt != 0 || record.Invocations != 0 {
			c.w.fail("%s: redriven with attempt %d", record.DispatchID, record.Attempt)
		}
		return
	}
	least := before.Invocations
	if before.Reason == events.ReasonInvocationStarted && record.Code == events.CodeProducerFailed {
		least-- // spent before the call, which then found no responder
	}
	if record.Attempt < before.Attempt || record.Invocations < least {
		c.w.fail("%s: attempt %d invocations %d follows attempt %d invocations %d", record.DispatchID,
			record.Attempt, record.Invocations, before.Attempt, before.Invocations)
	}
}

// pause holds when the next attempt of a retrying record is due: the backoff doubles up to its maximum, give or take
// a fifth; a deferral spends no time.
func (c *check) pause(record *events.DispatchReceipt) {
	if record.Status != events.StatusRetrying {
		return
	}
	backoff := c.s.retry.Initial
	for range record.Attempt - 1 {
		backoff = min(2*backoff, c.s.retry.Max)
	}
	low, high := backoff-backoff/5, backoff+backoff/5
	switch {
	case record.Reason == events.ReasonInvocationStarted:
		low, high = low+c.s.timeout, high+c.s.timeout
	case record.Code == "":
		low, high = 0, 0
	}
	pause := events.Timestamp(record.RetryAt).Time().Sub(record.RecordedAt.Time())
	if pause < low || pause > high {
		c.w.fail("%s: attempt %d is followed after %s, want from %s to %s", record.DispatchID, record.Attempt, pause, low, high)
	}
}

// called holds a call against what the node has installed and the record that it is based upon.
func (c *check) called(call *core.Call, by *release) {
	d := call.Dispatch
	input := events.DigestOf(d.InputData)
	c.inputs[d.Key] = append(c.inputs[d.Key], input)
	if by.installed.Hooks[d.Key.Hook].Digest != d.Registration {
		c.w.fail("%s is called under a registration that is not installed", d.Key.Hook)
	}
	if c.outside[input] {
		c.w.fail("%s is called with what is not public-safe", d.Key.Hook)
	}
	if call.Attempt > c.s.retry.MaxAttempts || call.Invocations > c.s.invocations[d.Key.Hook] {
		c.w.fail("attempt %d, invocation %d of %s begins", call.Attempt, call.Invocations, d.Key.Dispatch)
	}
	if call.Base == 0 {
		return
	}
	base := c.b.journal[d.Key][call.Base-1].record
	if base.InputDigest != input {
		c.w.fail("the attempt on record %d of %s has another input", call.Base, d.Key.Dispatch)
	}
	own := base.Attempt == call.Attempt // it was announced by this record
	if base.Status == events.StatusRetrying && !own {
		if early := events.Timestamp(base.RetryAt).Time().Sub(c.w.now()); early > 2*skew {
			c.w.fail("attempt %d of %s begins %s before its time", call.Attempt, d.Key.Dispatch, early)
		}
	}
}

// refused holds a refusal against why the receipt had to be refused.
func (c *check) refused(data []byte) {
	refusal, err := events.Decode[events.Refusal](data)
	if err != nil {
		c.w.fail("a refusal does not decode: %v", err)
		return
	}
	if want := c.refusals[refusal.Digest]; refusal.Reason != want {
		c.w.fail("a receipt is refused as %q, want %q", refusal.Reason, want)
	}
}

// conflicting holds a conflict against the record that stands.
func (c *check) conflicting(data []byte) {
	conflict, err := events.Decode[events.Conflict](data)
	if err != nil {
		c.w.fail("a conflict does not decode: %v", err)
		return
	}
	history := c.b.journal[core.Key{Dispatch: conflict.DispatchID, Hook: conflict.HookID}]
	if conflict.StandingRecord > len(history) {
		c.w.fail("a conflict of %s with record %d, which is not there", conflict.DispatchID, conflict.StandingRecord)
		return
	}
	record := history[conflict.StandingRecord-1].record
	standing := record.InputDigest
	if conflict.Reason == events.ReasonResultDiffers {
		standing = events.Digest(record.ResultDigest)
	}
	if conflict.StandingDigest != standing || conflict.LoserDigest == standing {
		c.w.fail("a conflict of %s with record %d has other digests", conflict.DispatchID, conflict.StandingRecord)
	}
}

// intent must have been proposed by the record that stands, and is told to be accepted when that was written.
func (c *check) intent(intent *events.Intent, acceptedAt events.Timestamp) {
	record := c.b.state(core.Key{Dispatch: intent.SourceDispatchID, Hook: intent.HookID})
	if record == nil || !slices.ContainsFunc(record.Intents, func(i events.Intent) bool { return i.IntentID == intent.IntentID }) {
		c.w.fail("intent %s was published and is in no record", intent.IntentID)
		return
	}
	if acceptedAt != record.RecordedAt {
		c.w.fail("intent %s was accepted at %s, its record is of %s", intent.IntentID, acceptedAt, record.RecordedAt)
	}
}

// acknowledged holds a receipt's message against the journal: nothing of it may depend on its coming again.
func (c *check) acknowledged(m *message, by *release) {
	if m.told.refused != "" && !c.b.beside[streams.RefusalSubject(events.SHA256(m.told.event.Data))] {
		c.w.fail("message %d was acknowledged and is neither dispatched nor refused", m.sequence)
	}
	for _, p := range c.plan(m.told, by) {
		if !c.known[p.key] {
			c.known[p.key] = true
			c.accounted = append(c.accounted, p.key)
		}
		c.accountedFor(p.key)
		// Told differently, it is the same dispatch, and the difference is on record.
		if record := c.b.state(p.key); record != nil && record.InputDigest != p.input &&
			!c.b.beside[streams.ConflictSubject(p.key.Dispatch, p.input, p.key.Hook)] {
			c.w.fail("%s was told differently and there is no conflict", p.key.Dispatch)
		}
	}
}

// woken holds a wake-up that was acknowledged against the journal.
func (c *check) woken(m *message) {
	if c.b.state(m.key) != nil {
		c.accountedFor(m.key)
	}
}

// accountedFor holds that the dispatch is over with everything it demands, or will be looked at again.
func (c *check) accountedFor(key core.Key) {
	record := c.b.state(key)
	switch {
	case record == nil:
		c.w.fail("%s was acknowledged and has no record", key.Dispatch)
	case record.Status.Terminal() && len(record.Intents) == 0:
	case c.b.hasWakeup(key):
	case !record.Status.Terminal():
		c.w.fail("%s is %s and has no wake-up", key.Dispatch, record.Status)
	case c.carried(key):
	default:
		c.intents(record)
	}
}

// carried reports whether a receipt's message that brings the dispatch about is still to be acknowledged.
func (c *check) carried(key core.Key) bool {
	return slices.ContainsFunc(c.carriers[key], func(i int) bool { return !c.messages[i].acked })
}

// always holds, at any moment, everything that was acknowledged.
func (c *check) always() {
	for _, key := range c.accounted {
		c.accountedFor(key)
	}
}

func (c *check) intents(record *events.DispatchReceipt) {
	for i := range record.Intents {
		if c.b.intents[record.Intents[i].IntentID] == nil {
			c.w.fail("%s is settled and its intent %s is not there", record.DispatchID, record.Intents[i].IntentID)
		}
	}
}

// tally is how many receipts are at an end, wait with a wake-up, or are still to be acknowledged.
type tally struct{ published, terminal, waiting, unacknowledged int }

func (c *check) tally() tally {
	t := tally{published: len(c.messages)}
	for _, m := range c.messages {
		terminal, waiting := true, true
		for _, p := range c.plan(m.told, c.releases[0]) {
			record := c.b.state(p.key)
			over := record != nil && record.Status.Terminal()
			terminal = terminal && over
			waiting = waiting && (over || c.b.hasWakeup(p.key))
		}
		switch {
		case !m.acked:
			t.unacknowledged++
		case terminal:
			t.terminal++
		case waiting:
			t.waiting++
		}
	}
	return t
}

// atRest holds when nothing is left to happen.
func (c *check) atRest() {
	for _, m := range c.messages {
		if !m.acked {
			c.w.fail("message %d was never acknowledged", m.sequence)
		}
	}
	for key, history := range c.b.journal {
		if !c.known[key] {
			// Begun under one release, by a receipt that was acknowledged under another, which has no such hook. This
			// is why a hook is drained before it is removed or changed.
			continue
		}
		record := lastOf(history).record
		if !record.Status.Terminal() {
			c.w.fail("%s is still %s", record.DispatchID, record.Status)
		}
		c.intents(record)
	}
}

// resting reports whether nothing is left to happen.
func (c *check) resting() bool {
	unacked := func(m *message) bool { return !m.acked }
	if slices.ContainsFunc(c.messages, unacked) || len(c.b.schedules) > 0 {
		return false
	}
	for _, n := range c.b.due {
		if n > 0 {
			return false
		}
	}
	return true
}
