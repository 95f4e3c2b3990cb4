package lane

import (
	"errors"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/afterwrite/afterwrite/dispatcher/core"
	"github.com/afterwrite/afterwrite/events"
)

// HookLimits bound what a lane has under way for one hook.
type HookLimits struct {
	// Places is the most attempts at once.
	Places int
	// TripAfter is how many failures in a row open the breaker.
	TripAfter int
	// OpenFor is how long the breaker stays open before it lets one attempt probe the hook.
	OpenFor time.Duration
}

// WithDefaults fills what is zero: 256 places, 10 failures, 5 s.
func (h HookLimits) WithDefaults() HookLimits {
	if h.Places == 0 {
		h.Places = 256
	}
	if h.TripAfter == 0 {
		h.TripAfter = 10
	}
	if h.OpenFor == 0 {
		h.OpenFor = 5 * time.Second
	}
	return h
}

// hook is what the lane knows of one hook's provider.
type hook struct {
	id      events.HookID
	limits  HookLimits
	taken   int
	breaker *gobreaker.TwoStepCircuitBreaker[struct{}]
	// fullSince is when the last place was taken, zero once more than a quarter of them is free again.
	fullSince time.Time
	// backlogFull is told by the host, which looks at the broker now and then.
	backlogFull bool
}

var (
	// errAttemptFailed counts against the hook.
	errAttemptFailed = errors.New("lane: attempt failed")
	// errNotAttempted does not count: the place was given back without a call.
	errNotAttempted = errors.New("lane: not attempted")
)

func newHook(id events.HookID, limits HookLimits, observer Observer) *hook {
	limits = limits.WithDefaults()
	return &hook{id: id, limits: limits, breaker: gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
		Name:        id,
		MaxRequests: 1,
		Timeout:     limits.OpenFor,
		ReadyToTrip: func(c gobreaker.Counts) bool { return int(c.ConsecutiveFailures) >= limits.TripAfter },
		IsExcluded:  func(err error) bool { return errors.Is(err, errNotAttempted) },
		OnStateChange: func(name string, _, to gobreaker.State) {
			observer.Breaker(name, to.String())
		},
	})}
}

// place is the right to one attempt of a hook; the zero place is none.
type place struct {
	hook *hook
	done func(error)
}

// take reserves a place, or says what keeps the hook from being called. A full backlog keeps out what would join it,
// and not what is on its way out of it.
func (h *hook) take(now time.Time, joins bool) (place, core.Pressure) {
	if joins && h.backlogFull {
		return place{}, core.PressureBacklogFull
	}
	if h.taken >= h.limits.Places {
		return place{}, core.PressureSaturated
	}
	done, err := h.breaker.Allow()
	if err != nil {
		return place{}, core.PressureSuspended
	}
	if h.taken++; h.taken == h.limits.Places && h.fullSince.IsZero() {
		h.fullSince = now
	}
	return place{h, done}, core.PressureNone
}

// release gives the place back, if there is one; err tells the breaker how the attempt went.
func (p *place) release(err error) {
	if p.hook == nil {
		return
	}
	p.hook.taken--
	if places := p.hook.limits.Places; places-p.hook.taken > places/relaxedPart {
		p.hook.fullSince = time.Time{}
	}
	p.done(err)
	*p = place{}
}

func (h *hook) suspended() bool { return h.breaker.State() == gobreaker.StateOpen }

// worth is how many dispatches of the hook are worth having under way: those that may be called, and half as many that are
// on their way to the journal or from it.
func (h *hook) worth() int { return (3*h.limits.Places + 1) / 2 }

// wakeRoom is how many wake-ups of the hook to pull where some are under way: none while it is suspended, one to probe it,
// else as many as there are free places.
func (h *hook) wakeRoom(taken int) int {
	switch h.breaker.State() {
	case gobreaker.StateOpen:
		return 0
	case gobreaker.StateHalfOpen:
		if h.taken > 0 || taken > 0 {
			return 0 // the probe is under way
		}
		return 1
	case gobreaker.StateClosed:
	}
	return min(maxWakeBatch, h.limits.Places-h.taken, h.worth()-taken)
}

const (
	// maxWakeBatch bounds one pull of wake-ups, so that those of a hook do not crowd out its receipts.
	maxWakeBatch = 64
	// patience is how long a full hook holds back the receipts of the others before its work is deferred instead.
	patience = 250 * time.Millisecond
	// relaxedPart: more than this part of its places must be free for a hook that was full to count as keeping up.
	relaxedPart = 4
)

// slow reports whether the hook has not kept up for longer than patience. One that is full and answers now and then is
// as slow as one that does not answer.
func (h *hook) slow(now time.Time) bool {
	return !h.fullSince.IsZero() && now.Sub(h.fullSince) >= patience
}

// receiptRoom is how many receipts to pull. They start at once, so it is the free places of the fullest hook: a
// provider that cannot keep up slows the intake instead of having its work deferred. But a hook may not hold up the
// others: while there is one that keeps up, those that are slow are passed over, and so are suspended ones. Their part
// of a receipt is deferred.
func receiptRoom(hooks []*hook, free int, now time.Time) int {
	keeping, slow := free, free
	keep := false
	for _, h := range hooks {
		switch room := h.limits.Places - h.taken; {
		case h.suspended():
		case h.slow(now):
			slow = min(slow, room)
		default:
			keep = true
			keeping = min(keeping, room)
		}
	}
	if keep {
		return keeping
	}
	return slow
}
