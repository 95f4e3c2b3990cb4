package dispatcher

import (
	"time"

	"github.com/nats-io/nats.go"
)

const (
	// inboxSize holds every reply that can be outstanding and everything that was pulled: a full one drops.
	inboxSize = 1 << 16
	// pause is how long a lane that runs is never without a look, and how long after one that was longer what was sent
	// meanwhile may still be on its way through the client.
	pause = time.Second
)

// inbox holds what a lane's subscription brought until the lane takes it, and bounds from above how long it lay there.
// Nobody notes when each message came; but what is taken after all that was there at some time came later than that.
type inbox struct {
	messages chan *nats.Msg
	// What is taken came after since; once ahead more are taken, after marked.
	since, marked time.Time
	ahead         int
	// looked is when the lane last looked or took; resumed when it had not for a pause.
	looked, resumed time.Time
}

// newInbox is one that is empty now.
func newInbox(now time.Time) inbox {
	return inbox{messages: make(chan *nats.Msg, inboxSize), since: now, marked: now, looked: now}
}

// look is to be called every now and then while nothing comes, for what comes next to have a bound that is not older. It
// reports whether more may be asked for.
func (b *inbox) look(now time.Time) bool {
	current := b.current(now)
	if current && len(b.messages) == 0 {
		b.marked, b.ahead = now, 0
	}
	return current
}

// took is to be called with each message that was taken. It returns how long that lay in the inbox at most.
func (b *inbox) took(now time.Time) time.Duration {
	current := b.current(now)
	if b.ahead > 0 {
		b.ahead--
	} else {
		b.since = b.marked
		if current {
			b.marked, b.ahead = now, len(b.messages)
		}
	}
	return now.Sub(b.since)
}

// current reports whether the inbox holds whatever was sent by now. It does not where the process was suspended a moment
// ago: the connection then holds what was sent meanwhile, and what is asked for now would be taken for as old.
func (b *inbox) current(now time.Time) bool {
	if now.Sub(b.looked) > pause {
		b.resumed = now
	}
	b.looked = now
	return now.Sub(b.resumed) >= pause
}
