package dispatcher

import (
	"time"

	"github.com/nats-io/nats.go"
)

// inboxSize holds every reply that can be outstanding and everything that was pulled: a full one drops.
const inboxSize = 1 << 16

// inbox holds what a lane's subscription brought until the lane takes it, and bounds from above how long it lay there.
// Nobody notes when each message came; but what is taken after all that was there at some time came later than that.
type inbox struct {
	messages chan *nats.Msg
	// What is taken came after since; once ahead more are taken, after marked.
	since, marked time.Time
	ahead         int
}

// newInbox is one that is empty now.
func newInbox(now time.Time) inbox {
	return inbox{messages: make(chan *nats.Msg, inboxSize), since: now, marked: now}
}

// look is to be called now and then while nothing comes, for what comes next to have a bound that is not older.
func (b *inbox) look(now time.Time) {
	if len(b.messages) == 0 {
		b.marked, b.ahead = now, 0
	}
}

// took is to be called with each message that was taken. It returns how long that lay in the inbox at most.
func (b *inbox) took(now time.Time) time.Duration {
	if b.ahead > 0 {
		b.ahead--
	} else {
		b.since = b.marked
		b.marked, b.ahead = now, len(b.messages)
	}
	return now.Sub(b.since)
}
