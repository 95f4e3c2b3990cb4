package simulation

import (
	"fmt"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/afterwrite/afterwrite/dispatcher/core"
	"github.com/afterwrite/afterwrite/events"
)

// mood is how a hook's provider behaves for a while.
type mood int

const (
	healthy   mood = iota
	slow           // answers, often after the timeout
	mute           // never answers
	absent         // nobody serves the subject
	failing        // answers with an error
	dying          // dies of each call, and is away until it is started again
	malformed      // answers, but not with a result
	fickle         // contradicts itself
)

var moods = []mood{healthy, slow, mute, absent, failing, dying, malformed, fickle}

// providers are those of all hooks.
type providers struct {
	w     *world
	s     *setting
	moods map[events.HookID]mood
	// script, if there is one, says what happens instead at a dispatch's nth call, from 1.
	script func(dispatch events.DispatchID, nth int) answer
	calls  map[events.DispatchID]int
	total  int
	// back is when a dying provider is started again.
	back map[events.HookID]time.Time
}

// answer is what a provider says, and after how long; it says nothing where kind is empty.
type answer struct {
	after time.Duration
	kind  core.ReplyKind
	// variant of the result; "" is the true one.
	variant string
}

func newProviders(w *world, s *setting) *providers {
	return &providers{
		w: w, s: s, moods: map[events.HookID]mood{}, calls: map[events.DispatchID]int{}, back: map[events.HookID]time.Time{},
	}
}

// call gives the provider's reply and after how long, or that there is none.
func (p *providers) call(hook events.HookID, dispatch events.DispatchID) (after time.Duration, _ core.Reply, answered bool) {
	p.calls[dispatch]++
	p.total++
	a := p.answer(hook, dispatch)
	reply := core.Reply{Kind: a.kind}
	if a.kind == core.ReplyResult {
		reply.Data = resultOf(hook, dispatch, a.variant)
		if p.script == nil && p.moods[hook] == malformed {
			reply.Data = reply.Data[:len(reply.Data)-1]
		}
	}
	return a.after, reply, a.kind != ""
}

func (p *providers) answer(hook events.HookID, dispatch events.DispatchID) answer {
	if p.script != nil {
		return p.script(dispatch, p.calls[dispatch])
	}
	a := answer{after: p.w.between(100*time.Microsecond, 20*time.Millisecond), kind: core.ReplyResult}
	switch p.moods[hook] {
	case healthy, malformed:
	case slow:
		a.after = p.w.between(0, 4*p.s.timeout)
	case mute:
		a.kind = ""
	case absent:
		a.kind = core.ReplyNoResponder
	case failing:
		a.kind = core.ReplyProviderError
	case dying:
		a.kind = core.ReplyNoResponder
		if !p.w.now().Before(p.back[hook]) {
			a.kind = ""
			p.back[hook] = p.w.now().Add(5 * time.Second)
		}
	case fickle:
		a.variant, a.after = fmt.Sprintf("call_%d", p.total), p.w.between(0, 2*p.s.timeout)
	}
	return a
}

// proposes is whether the true answer to the dispatch has an intent: most have.
func proposes(dispatch events.DispatchID) bool { return dispatch[len(dispatch)-1] < 'c' }

// resultOf is a hook's true answer: it depends on the dispatch alone, unless variant says otherwise.
func resultOf(hook events.HookID, dispatch events.DispatchID, variant string) []byte {
	result := &events.HookResult{
		CapabilityID: capability(hook), DispatchID: dispatch, HookID: hook,
		SchemaVersion: events.HookResultSchema, Status: events.ResultNotApplicable,
	}
	if proposes(dispatch) {
		intent := events.Intent{
			Budget: events.IntentBudget{MaxAttempts: 1, MaxResultBytes: 1024}, CapabilityID: capability(hook),
			FailurePolicy: events.Isolate, HookID: hook, IntentKind: intentKind(hook), Operation: "simulate",
			Payload: jsontext.Value(`{"variant":"` + variant + `"}`), PolicyVersion: "v0",
			SchemaVersion: events.IntentSchema, SourceDispatchID: dispatch,
		}
		intent.IntentID = intent.Identity()
		result.Status, result.Intents = events.ResultProposed, []events.Intent{intent}
	}
	return events.Canonical(result)
}

// change gives a hook another mood.
func (p *providers) change() {
	hook := hooks[p.w.rng.IntN(len(hooks))]
	p.moods[hook] = moods[p.w.rng.IntN(len(moods))]
	if p.w.oneIn(2) {
		p.moods[hook] = healthy
	}
	p.w.tell("provider of %s has mood %d", hook, p.moods[hook])
}
