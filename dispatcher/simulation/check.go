package simulation

import (
	"maps"
	"slices"

	"github.com/afterwrite/afterwrite/dispatcher/core"
	"github.com/afterwrite/afterwrite/events"
)

// check holds the history against what must be true of every one.
type check struct {
	w         *world
	b         *broker
	installed *core.Installed
	messages  []*message
	// carriers are the messages that bring a dispatch about.
	carriers map[core.Key][]*message
	// accounted holds the dispatches of receipts that were acknowledged.
	accounted map[core.Key]bool
}

func (c *check) published(m *message) {
	c.messages = append(c.messages, m)
	for _, key := range c.plan(m.event.Data) {
		c.carriers[key] = append(c.carriers[key], m)
	}
}

// appended holds a record against the one before it: the design's status table, and counting.
func (c *check) appended(history []stored, record *events.DispatchReceipt) {
	if len(history) == 0 {
		if record.RecordNumber != 1 {
			c.w.fail("%s begins with record %d", record.DispatchID, record.RecordNumber)
		}
		return
	}
	before := history[len(history)-1].record
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
	budget := c.installed.Hooks[record.HookID].Registration.Budget
	if record.Invocations > budget.MaxInvocationsPerDispatch {
		c.w.fail("%s: %d invocations of %d", record.DispatchID, record.Invocations, budget.MaxInvocationsPerDispatch)
	}
	if most := c.installed.Profiles[record.Profile].Retry.MaxAttempts; record.Attempt > most {
		c.w.fail("%s: %d attempts of %d", record.DispatchID, record.Attempt, most)
	}
}

// intent must have been proposed by the record that stands.
func (c *check) intent(intent *events.Intent) {
	record := c.b.state(core.Key{Dispatch: intent.SourceDispatchID, Hook: intent.HookID})
	if record == nil || !slices.ContainsFunc(record.Intents, func(i events.Intent) bool { return i.IntentID == intent.IntentID }) {
		c.w.fail("intent %s was published and is in no record", intent.IntentID)
	}
}

// acknowledged holds a message against the journal: nothing of it may depend on its coming again.
func (c *check) acknowledged(m *message) {
	if m.consumer != c.b.receipts {
		if c.b.state(m.key) != nil {
			c.accountedFor(m.key)
		}
		return
	}
	for _, key := range c.plan(m.event.Data) {
		c.accounted[key] = true
		c.accountedFor(key)
	}
}

// accountedFor holds that the dispatch is over with everything it demands, or will be looked at again.
func (c *check) accountedFor(key core.Key) {
	record := c.b.state(key)
	switch {
	case record == nil:
		c.w.fail("%s was acknowledged and has no record", key.Dispatch)
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
	return slices.ContainsFunc(c.carriers[key], func(m *message) bool { return !m.acked })
}

// always holds, at any moment, everything that was acknowledged.
func (c *check) always() {
	for key := range c.accounted {
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

// plan is the keys of a receipt's dispatches, reckoned from the identities of the contract alone.
func (c *check) plan(data []byte) []core.Key {
	receipt, err := events.Decode[events.Receipt](data)
	if err != nil {
		c.w.fail("a receipt of the simulation does not decode: %v", err)
		return nil
	}
	var keys []core.Key
	for _, id := range slices.Sorted(maps.Keys(c.installed.Hooks)) {
		hook := c.installed.Hooks[id]
		dispatch := events.DispatchIdentity(receipt.Identity(), id, hook.Registration.CapabilityID, hook.Digest, receipt.EventKind)
		keys = append(keys, core.Key{Dispatch: dispatch, Hook: id})
	}
	return keys
}

// atRest holds when nothing is left to happen.
func (c *check) atRest() {
	for _, m := range c.messages {
		if !m.acked {
			c.w.fail("message %d was never acknowledged", m.sequence)
		}
	}
	for _, history := range c.b.subjects {
		record := history[len(history)-1].record
		if record == nil {
			continue
		}
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
