package simulation

import (
	"time"

	"github.com/afterwrite/afterwrite/dispatcher/core"
	"github.com/afterwrite/afterwrite/dispatcher/lane"
)

// consumer hands out messages, each until it is acknowledged.
type consumer struct {
	w       *world
	ackWait time.Duration
	source  lane.Source
	waiting []*message
	pulls   []*pull
	// twice delivers every message to two at once.
	twice bool
}

type message struct {
	consumer   *consumer
	told       *told
	key        core.Key
	sequence   uint64
	at         time.Time
	deliveries int
	acked      bool
	free       bool // waits to be delivered
	// deadline is when the last delivery must have been acknowledged; it moves with every sign of progress.
	deadline time.Time
}

type pull struct {
	node    *node
	life    int
	op      lane.Op
	batch   int
	expires time.Time
}

func (c *consumer) offer(m *message) {
	m.free = true
	c.waiting = append(c.waiting, m)
	c.serve()
}

// serve gives waiting messages to waiting pulls.
func (c *consumer) serve() {
	for len(c.waiting) > 0 {
		p := c.next()
		if p == nil {
			return
		}
		m := c.waiting[0]
		c.waiting = c.waiting[1:]
		m.deliveries++
		c.deliver(m, p)
		if c.twice || c.w.chance(.01) {
			// The consumer's leader went before it had told the others of the delivery.
			if p := c.next(); p != nil {
				c.deliver(m, p)
			}
		}
	}
}

// next takes one message's worth of the oldest pull that still waits.
func (c *consumer) next() *pull {
	for len(c.pulls) > 0 {
		p := c.pulls[0]
		if p.batch > 0 && p.expires.After(c.w.now()) && p.node.alive(p.life) && !p.node.offline {
			p.batch--
			return p
		}
		c.pulls = c.pulls[1:]
	}
	return nil
}

func (c *consumer) deliver(m *message, p *pull) {
	m.free = false
	d := &lane.Delivery{Source: c.source, Key: m.key, Sequence: m.sequence, Deliveries: m.deliveries, StreamTime: m.at}
	if m.told != nil {
		d.Event = m.told.event
	}
	c.awaitAck(m, m.deliveries, c.w.now().Add(c.ackWait))
	if c.w.chance(.02) {
		return // lost on the way; the ack deadline brings it again
	}
	late := c.w.latency()
	if c.w.chance(.02) {
		late = c.w.between(0, 2*c.ackWait) // on the way, where nobody can know of it
	}
	c.w.after(late, func() { p.node.take(p.life, d, m) })
}

// awaitAck offers the message again if that delivery is still the last and unacknowledged at the deadline.
func (c *consumer) awaitAck(m *message, delivery int, deadline time.Time) {
	m.deadline = deadline
	c.w.at(deadline, func() {
		if !m.acked && !m.free && m.deliveries == delivery && m.deadline.Equal(deadline) {
			c.offer(m)
		}
	})
}

func (c *consumer) pull(p *pull) {
	c.pulls = append(c.pulls, p)
	c.w.at(p.expires, func() { p.end(false) })
	c.serve()
}

// end tells the node that the pull will bring nothing more.
func (p *pull) end(refused bool) {
	if p.batch > 0 {
		p.batch = 0
		p.node.answer(p.life, func(now time.Time, l *lane.Lane) { l.PullEnded(now, p.op, refused) })
	}
}

// forget drops the pulls of a node that lost its connection.
func (c *consumer) forget(n *node) {
	for _, p := range c.pulls {
		if p.node == n {
			p.batch = 0
		}
	}
}

// handBack offers the message again after the delay, unless the delivery is no longer the last.
func (m *message) handBack(delivery int, delay time.Duration) {
	if !m.acked && !m.free && m.deliveries == delivery {
		m.consumer.awaitAck(m, delivery, m.consumer.w.now().Add(delay))
	}
}

// progress moves the deadline of the delivery, if it is the last.
func (m *message) progress(delivery int) {
	if !m.acked && !m.free && m.deliveries == delivery {
		m.consumer.awaitAck(m, delivery, m.consumer.w.now().Add(m.consumer.ackWait))
	}
}
